"""The command, end to end, on a small project of its own."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.harness.mutate.conftest import BUCKETING, mutate

TARGET = ("--target", "bucketing", "--tests", "test_bucketing.py", "-j", "2")


def one(ran, *words):
    """The mutant whose id begins and ends so."""
    start, end = words
    found = [
        m for name, m in ran.mutants().items() if name.startswith(f"bucketing:{start}") and m.get("replacement") == end
    ]
    assert len(found) == 1, (words, sorted(ran.mutants()))
    return found[0]


def test_a_whole_session_says_what_was_noticed(whole_run):
    assert whole_run.code == 0, whole_run.out + whole_run.err
    assert re.search(r"controls (\d+)/\1 ", whole_run.out)
    assert re.search(r"killed \d+ .*survived \d+ .*not covered \d+", whole_run.out)
    statuses = {m["status"] for m in whole_run.mutants().values()}
    assert {"Killed", "Survived", "NoCoverage", "Timeout"} <= statuses


def test_who_killed_it_and_what_it_said(whole_run):
    mutant = one(whole_run, "send:lift-finally", "# after the try:\nengine.append('end')")
    assert mutant["status"] == "Survived", "no test makes a bucket fail"
    begin = one(whole_run, "send:constant", "'begin~'")
    assert begin["status"] == "Killed"
    assert "AssertionError" in begin["statusReason"]
    assert "test_brackets" in begin["statusReason"]


def test_a_rule_named_by_a_test_is_visible(whole_run):
    names = [t["name"] for f in whole_run.report()["testFiles"].values() for t in f["tests"]]
    assert "NAME-3: test_nothing_is_lost[5]" in names
    rules = [m["statusReason"] for m in whole_run.mutants().values() if m["status"] == "Killed"]
    assert any(reason.startswith("killed by NAME-3: ") for reason in rules)


def test_an_endless_loop_is_a_time_out_by_steps(whole_run):
    mutant = one(whole_run, "pairs:arithmetic", "n += 2")
    assert mutant["status"] == "Timeout"
    assert "step budget spent" in mutant["statusReason"]


def test_what_only_an_import_runs_is_seen_by_the_second_run(whole_run):
    mutant = one(whole_run, "at_import:constant", "'key~'")
    assert mutant["status"] == "Killed"
    assert "test_table" in mutant["statusReason"]


def test_nothing_is_left_in_the_folder_and_the_sources_are_untouched(whole_run):
    assert {p.name for p in whole_run.folder.iterdir()} <= {
        "bucketing.py", "test_bucketing.py", "report", "cache", ".hypothesis",
    }  # fmt: skip
    assert (whole_run.folder / "bucketing.py").read_text(encoding="utf-8") == BUCKETING


def test_a_second_run_is_from_the_cache_and_a_minimum_score_is_an_exit_code(project):
    first = mutate(project, *TARGET, "--op", "constant", "--no-rerun", "--min-score", "10")
    again = mutate(project, *TARGET, "--op", "constant", "--no-rerun", "--min-score", "100")
    assert "from the cache" not in first.out
    assert "from the cache" in again.out
    assert first.out.splitlines()[0:2] == again.out.splitlines()[0:2]
    assert (first.code, again.code) == (0, 1)


def test_one_mutant_explained_shows_the_change_and_pytests_own_report(project):
    listed = mutate(project, "--target", "bucketing", "--tests", "x", "--list", "--op", "drop-call").out
    name = next(line.split()[0] for line in listed.splitlines() if "begin" in line)
    ran = mutate(project, *TARGET, "--explain", name)
    assert ran.code == 0, ran.err
    assert "-    engine.append('begin')" in ran.out
    assert "> " in ran.out
    assert "assert [2, 1, 'end'] == ['begin', 2, 1, 'end']" in ran.out


def test_a_minimum_score_of_nothing_is_not_reached_unless_nothing_changed(project):
    def git(*args):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *args], cwd=project, check=True)

    git("init", "-q")
    git("add", "bucketing.py", "test_bucketing.py")
    git("commit", "-qm", "one")
    nothing = mutate(project, *TARGET, "--op", "drop-await", "--min-score", "1")
    unchanged = mutate(project, *TARGET, "--since", "HEAD", "--min-score", "1")
    assert (nothing.code, unchanged.code) == (1, 0)
    for ran in (nothing, unchanged):
        assert "--min-score: no generic mutant has a verdict, so there is no score to judge" in ran.out
        assert "no score" in ran.out


def test_a_sample_is_chosen_by_the_seed(project):
    base = ("--target", "bucketing", "--tests", "x", "--list", "--sample", "5", "--seed")
    three = [mutate(project, *base, seed).out for seed in ("1", "1", "2")]
    assert len(three[0].splitlines()) == 5
    assert three[0] == three[1] != three[2]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nonsense", *TARGET), "unknown mutant 'nonsense'; --list shows all"),
        (("nonsense",), "unknown mutant 'nonsense'; --list shows all"),
        (("--target", "no.such.module", "--tests", "x"), "target no.such.module does not import: ModuleNotFoundError"),
        (("--target", "broken", "--tests", "x"), "target broken does not import: ZeroDivisionError: division by zero"),
        (
            ("--target", "lonely", "--tests", "test_bucketing.py"),
            "target without tests: no check runs a line of lonely",
        ),
        (("--target", "bucketing"), "nothing judges: give --tests, or --sut for the rules"),
        (("--target", "bucketing", "--tests", "test_nothing.py"), "pytest collected nothing from test_nothing.py"),
        (("--target", "bucketing", "--tests", "test_broken.py"), "tests do not collect: test_broken.py"),
        ((*TARGET, "--op", "explode"), "unknown operator 'explode'; known: drop-call"),
        ((*TARGET, "-j", "many"), "-j 'many' is neither a positive number nor auto"),
        ((*TARGET, "--equivalents", "none.toml"), "none.toml: "),
        ((*TARGET, "--report", "bucketing.py"), "bucketing.py: is not a folder"),
        ((*TARGET, "--since", "HEAD"), "--since: "),
        (("--catalogue", "none.py"), "none.py: no such file"),
        (("--generic",), "--generic: no [tool.refitcheck.mutate]"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_4(project, args, said):
    (project / "broken.py").write_text("1 / 0\n")
    (project / "test_broken.py").write_text("import nothing_of_this_name\n")
    (project / "lonely.py").write_text("def f():\n    return 1\n")
    ran = mutate(project, *args)
    assert (ran.code, ran.out) == (4, ""), ran.err
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1, ran.err


def test_the_projects_own_set_is_one_command(project):
    (project / "pyproject.toml").write_text(
        '[tool.refitcheck.mutate]\ntargets = ["bucketing"]\ntests = ["test_bucketing.py"]\nequivalents = "known.toml"\n'
    )
    (project / "known.toml").write_text(
        '[[equivalent]]\ntarget = "bucketing:send"\nop = "swallow"\n'
        'original = "never"\nreplacement = "x"\nreason = "y"\n'
    )
    ran = mutate(project, "--generic", "--no-rerun")
    assert "stale entry: bucketing:send swallow: never -> x" in ran.out
    assert ran.code == 1


def test_a_name_between_colons_is_no_emoji(tmp_path):
    (tmp_path / "client.py").write_text("def loop():\n    return 1\n")
    ran = mutate(tmp_path, "--target", "client", "--tests", "x", "--list")
    assert ran.out.startswith("client:loop:"), ran.out


CLAMP = """
def clamp(values, low, high):
    out = []
    for value in values:
        if value < low or (value == low and high is None):
            value = low
        elif high is not None and value > high:
            value = high
        out.append(value)
    return out[: len(values) + 1]
"""
CLAMP_TESTS = """
import pytest
import clamp

@pytest.mark.parametrize("n", range(12))
def test_inside(n):
    assert clamp.clamp([n, n + 0.5], n - 1, n + 2) == [n, n + 0.5]

@pytest.mark.parametrize("high", [3, None])
def test_below(high):
    assert clamp.clamp([-5, 1], 0, high) == [0, 1]
"""


def test_verdicts_are_the_same_with_and_without_screening(project):
    (project / "clamp.py").write_text(CLAMP)
    (project / "test_clamp.py").write_text(CLAMP_TESTS)
    base = ("--target", "clamp", "--target", "bucketing", "--tests", "test_clamp.py", "--tests", "test_bucketing.py")
    said = []
    for way in ("--screen", "--no-screen"):
        ran = mutate(project, *base, way, "--no-rerun", "--no-cache", "--report", "report", "-j", "2")
        assert ran.code == 0, ran.err
        said.append({name: m["status"] for name, m in ran.mutants().items()})
    assert said[0] == said[1]


PATCHED = """
import limits

def test_patched(monkeypatch):
    monkeypatch.setattr(limits, "LIMIT", 2)
    assert limits.f() == 2

def test_slower(tmp_path):
    (tmp_path / "new").mkdir()
    assert sum(range(200_000)) and limits.f() == 1
"""


def test_what_a_test_patches_is_undone_in_every_child(tmp_path):
    """An item that ran in the baseline gets new fixtures; else unchanged code would not survive the next test."""
    (tmp_path / "limits.py").write_text("LIMIT = 1\n\n\ndef f():\n    return LIMIT\n\n\ndef g():\n    return f() + 1\n")
    (tmp_path / "test_limits.py").write_text(PATCHED)
    ran = mutate(tmp_path, "--target", "limits", "--tests", "test_limits.py", "--no-rerun", "--no-cache")
    assert "control failed" not in ran.out
    assert re.search(r"controls (\d+)/\1 ", ran.out), ran.out
