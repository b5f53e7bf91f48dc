from __future__ import annotations

import json

import pytest
from junitparser import JUnitXml

from harness.cli import invoke
from harness.history_files import read_history
from harness.run import HEADS


@pytest.fixture
def cli(toys_installed, capsys, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("REFITCHECK_TRACEBACK", raising=False)

    def run(*arguments):
        code = invoke(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return run


RUN = ("run", "--lane", "toy", "--sut", "toy", "--exploration", "off", "-n", "1")


def test_a_run_in_which_a_precondition_never_occurred_ends_with_two(cli):
    code, out, _ = cli(*RUN)
    assert code == 2
    assert "? TOY-2 MUST" in out
    assert "why      its precondition never occurred" in out
    assert "held 1   violated 0   inconclusive 1   unsupported 0" in out
    assert "TOY 1/2" in out
    assert "exercised  TOY-1×1  TOY-2×0" in out


def test_a_run_that_holds_ends_with_zero_and_its_header_tells_all(cli):
    code, out, err = cli(*RUN, "--rule", "TOY-1", "--seed", "7")
    assert (code, err) == (0, "")
    assert "engine fake:0.5.23 in a toy, tp 1   clock: virtual   sut toy, policy resume   seed 7" in out
    assert "rules TOY-1" in out


def test_a_finding_shows_clause_allowed_actual_and_a_replay_line_that_finds_it_again(cli):
    options = ("--rule", "TOY-2", "--fault", "e0:flush_cache#1:after:status500", "--plant", "careless")
    code, out, _ = cli(*RUN, *options)
    assert code == 1
    lines = [line.split(None, 1) for line in out.splitlines() if line.startswith("  ")]
    block = {key: rest.strip() for key, *more in lines if more for rest in more}
    assert out.startswith("✗ TOY-2 MUST  (every sglang)  the text of TOY-2")
    assert block["engine"] == "in a toy fake:0.5.23 tp 1        sut  toy"
    assert block["clause"] == "somewhere.py:1"
    assert (block["allowed"], block["actual"]) == ("a failed refit", "success")
    replay = block["replay"].replace("'", "").split()
    assert replay[0] == "refitcheck"
    again, out, _ = cli(*replay[1:], "-n", "1")
    assert again == 1
    assert "✗ TOY-2" in out


def test_an_inconclusive_rule_can_be_allowed(cli, tmp_path):
    assert cli(*RUN, "--allow-inconclusive", "TOY", "--junitxml", str(tmp_path / "j.xml"))[0] == 0
    (suite,) = JUnitXml.fromfile(str(tmp_path / "j.xml"))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (2, 0, 0, 1)


def test_results_junit_and_markdown_say_the_same(cli, tmp_path, monkeypatch):
    step = tmp_path / "step.md"
    step.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    files = {kind: tmp_path / name for kind, name in (("report", "r.json"), ("junitxml", "j.xml"), ("summary", "s.md"))}
    code, out, _ = cli(*RUN, *(f"--{kind}={path}" for kind, path in files.items()))
    data = json.loads(files["report"].read_text())
    assert data["exit_code"] == code == 2
    assert data["counts"] == {"held": 1, "violated": 0, "inconclusive": 1, "unsupported": 0, "error": 0}
    assert [(r["rule"], r["status"], r["exercised"]) for r in data["results"]] == [
        ("TOY-1", "held", 1),
        ("TOY-2", "inconclusive", 0),
    ]
    assert data["results"][0]["replay"].startswith("refitcheck run --rule TOY-1 ")
    assert {unit["scenario"] for unit in data["units"]} == {"toy/flushes", "toy/refits"}
    (suite,) = JUnitXml.fromfile(str(files["junitxml"]))
    assert {case.name: [type(r).__name__ for r in case.result] for case in suite} == {
        "TOY-1[fake:0.5.23]": [],
        "TOY-2[fake:0.5.23-toy]": ["Error"],
    }
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (2, 0, 1, 0)
    markdown = files["summary"].read_text()
    assert "| TOY | 1 | 2 |" in markdown
    assert step.read_text() == "before\n" + markdown
    assert all(str(path) in out for path in files.values())


def test_histories_are_kept_and_can_be_judged_again(cli, tmp_path):
    cli(*RUN, "--histories", str(tmp_path / "h"))
    files = sorted(path.name for path in (tmp_path / "h").iterdir())
    assert files == ["toy.flushes-0.5.23-tp1.jsonl.xz", "toy.refits-0.5.23-tp1-toy.jsonl.xz"]
    assert read_history(tmp_path / "h" / files[0]).header.meta["scenario"] == "toy/flushes"
    code, out, _ = cli("judge", str(tmp_path / "h" / files[0]))
    assert code == 0
    assert "TOY-1  held  ×1" in out
    assert "judged by the 1 rules of scenario toy/flushes\n" in out
    refits = str(tmp_path / "h" / files[1])
    assert cli("judge", refits, "--rule", "TOY-2", "--without-core")[0] == 2  # as the run says
    foreign = cli("judge", refits, "--rule", "TOY-1")
    assert foreign[::2] == (
        4,
        "refitcheck: TOY-1 cannot judge this history: it is none of the rules of scenario toy/refits\n",
    )


def test_a_stored_history_that_breaks_a_rule_is_violated(cli, tmp_path):
    hurt = ("--plant", "careless", "--fault", "e0:flush_cache#1:before:drop", "--rule", "TOY-2")
    cli(*RUN, *hurt, "--histories", str(tmp_path))
    (path,) = tmp_path.iterdir()
    code, out, _ = cli("judge", str(path))
    assert code == 1
    assert "TOY-2  violated  ×1  " in out
    assert "  actual   success\n  where    t=0.000 e0 POST /flush_cache -> indefinite" in out


def test_list_shows_each_rule_with_the_plant_that_it_catches(cli):
    code, out, _ = cli("list")
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("TOY-2"))
    assert row.split()[:7] == ["TOY-2", "MUST", "refit", "all", "1", "1", "careless"]
    assert cli("list", "--rules") == (0, out, "")
    assert "11 rules in 2 families, 2 scenarios, 2 mutants of the catalogue, 2 of them plants, 9 rules" in out


def test_list_counts_the_mutants_beside_each_rule(cli, toys_installed):
    toys_installed("toymutants", "tests.harness.toys:toy_mutants", "refitcheck.catalogues")
    rows = {line.split()[0]: line.split() for line in cli("list", "--rules")[1].splitlines()}
    assert [rows[rule][5] for rule in ("rule", "TOY-1", "TOY-2")] == ["mutants", "2", "3"]
    assert " ".join(rows["11"]).endswith(
        ", 4 mutants of the catalogue, 2 of them plants, 9 rules without a planted defect"
    )
    _, out, _ = cli("explain", "TOY-1")
    assert "  kills      both  (a toy)\n" in out


def test_list_of_provenance_says_what_was_validated_and_what_was_not(cli, toys_installed):
    toys_installed("real", "tests.harness.toys:validated_suite", "refitcheck.suites")
    toys_installed("realmutants", "tests.harness.toys:real_mutants", "refitcheck.catalogues")
    code, out, _ = cli("list", "--provenance")
    assert code == 0
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()}
    assert rows["REAL-1"] == "validated 0.5.20 on 2026-01-02, 0.5.23 on 2026-03-04"
    assert rows["REAL-2"] == "not yet not now"
    assert rows["TOY-1"] == "fake only a toy"
    assert out.splitlines()[-1] == "fake only 11  validated 1  not yet 1  of 13 rules"


@pytest.mark.parametrize("size", ["3", "5", "8", "100"])
def test_a_size_that_the_models_cannot_be_cut_into_is_refused(cli, size):
    told = f"refitcheck: --tp {size}: the tiny models have 4 attention heads, so it is one of [1, 2, 4]\n"
    assert cli(*RUN, "--tp", size) == (4, "", told)


def test_the_models_are_cut_as_their_heads_allow():
    from fakes.tiny import SHAPES, tiny_config

    assert {tiny_config(shape)["num_attention_heads"] for shape in SHAPES} == {HEADS}


def test_list_is_of_one_thing(cli):
    assert cli("list", "--rules", "--scenarios")[::2] == (
        4,
        "refitcheck: list takes one of --rules, --scenarios, --provenance and --validated-before\n",
    )


def test_list_of_scenarios(cli):
    code, out, _ = cli("list", "--scenarios")
    assert code == 0
    assert "toy/refits   refit explored  TOY-2  fake only: a toy" in out


def test_explain_tells_all_of_one_rule(cli):
    code, out, _ = cli("explain", "toy-2")
    assert code == 0
    for told in ("the text of TOY-2", "somewhere.py:1", "toy/refits", "careless", "it looks at no answer"):
        assert told in out


def test_a_command_of_another_package_is_mounted(cli):
    assert cli("toy", "--times", "2")[:2] == (0, "toy toy \n")
    assert "toy" in cli("--help")[1]


def test_doctor_is_content_with_the_toys(cli):
    code, out, _ = cli("doctor")
    assert code == 0
    assert "11 rules, 2 scenarios, 2 plants fit together" in out
    assert "BAD" not in out


def test_doctor_names_what_is_broken(cli, toys_installed):
    toys_installed("moon", "no.such:Lane", "refitcheck.lanes")
    code, out, _ = cli("doctor")
    assert code == 4
    assert "BAD  lane moon: " in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "--bogus"), "--bogus"),
        (("frobnicate",), "frobnicate"),
        ((*RUN, "--engine", "0.1"), "unknown engine version '0.1'; known: 0.5.20, 0.5.23, all"),
        ((*RUN, "--engine", "sglang:0.5.23"), "this lane has fake engines"),
        ((*RUN, "--engine", ","), "no engine version given"),
        ((*RUN, "--sut", "moon"), "no system under test 'moon'"),
        (("run", "--lane", "moon"), "no lane 'moon'"),
        ((*RUN, "--policy", "hope"), "unknown policy 'hope'; one of resume, quarantine, terminal"),
        ((*RUN, "--exploration", "deep"), "unknown exploration 'deep'"),
        ((*RUN, "--rule", "NOPE"), "no rule or family 'NOPE'"),
        ((*RUN, "--allow-inconclusive", "NOPE"), "no rule or family 'NOPE'"),
        ((*RUN, "--scenario", "a/b"), "no scenario 'a/b'"),
        ((*RUN, "--plant", "oak"), "no plant 'oak'"),
        ((*RUN, "--fault", "x"), "fault 'x' is not of the form"),
        ((*RUN, "--tp", "two"), "--tp"),
        ((*RUN, "--tp", "-1"), "--tp"),
        ((*RUN, "--tp", "9"), "tp 9"),
        ((*RUN, "--lane-option", "x"), "'x' is not of the form name=value"),
        ((*RUN, "-n", "some"), "-n 'some' is neither"),
        (
            (*RUN, "--rule", "TOY-2", "--side", "engine"),
            "nothing to run: TOY-2 is exercised by scenarios of the side",
        ),
        (
            (*RUN, "--rule", "EXPLORE-1"),
            "nothing to run: EXPLORE-1 judges runs with faults, and this one has none",
        ),
        ((*RUN, "--report", "/no/such/folder/r.json"), "/no/such/folder/r.json: no such folder"),
        (("explain", "NOPE-1"), "no rule 'NOPE-1'"),
        (("explain", "TOY-9"), "TOY has TOY-1 TOY-2"),
        (("explain",), "RULE"),
        (("judge", "/no/such.jsonl"), "/no/such.jsonl: No such file"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_one_line_and_exit_code_four(cli, arguments, told):
    code, out, err = cli(*arguments)
    assert code == 4
    assert out == ""
    assert told in err
    assert len(err.splitlines()) == 1


def test_a_malformed_history_is_one_line_and_exit_code_four(cli, tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_text('{"kind": "header", "seq": 1}\n{"kind": "fact"}\n')
    code, _, err = cli("judge", str(path))
    assert code == 4
    assert err.startswith(f"refitcheck: {path}:2: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("NOPE", "NOPE is no rule or family; see refitcheck list"),
        ("explore", "explore is judged beside a fault-free history: --beside names its file"),
    ],
)
def test_rules_that_cannot_be_judged_again_are_told_apart(cli, tmp_path, rule, told):
    path = tmp_path / "h.jsonl"
    path.write_text('{"kind": "header", "seq": 1}\n')
    assert cli("judge", str(path), "--rule", rule) == (4, "", f"refitcheck: {told}\n")


def test_what_the_harness_breaks_is_exit_code_three(cli, monkeypatch):
    def broken():
        raise RuntimeError("the sky\nfell")

    monkeypatch.setattr("harness.listing.load_book", broken)
    code, _, err = cli("list")
    assert code == 3
    assert err == "refitcheck: harness error: RuntimeError: the sky fell (REFITCHECK_TRACEBACK=1 shows where)\n"


def test_every_setting_is_in_the_header_and_in_the_replay_line(cli, tmp_path):
    settings = ("--tp", "2", "--policy", "terminal", "--allow-inconclusive", "TOY-2", "--lane-option", "warp=9")
    settings += ("--hang-timeout", "9", "--fatal-sample", "7")
    code, out, _ = cli(*RUN, *settings, "--scenario", "toy/refits", "--report", str(tmp_path / "r.json"))
    assert code == 2  # what may be inconclusive is no pass where nothing else held
    assert "TOY-1" not in out
    replay = json.loads((tmp_path / "r.json").read_text())["replay"]
    assert replay == (
        "refitcheck run --scenario toy/refits --lane toy --engine fake:0.5.23 --sut toy --policy terminal"
        " --tp 2 --seed 20261130 --lane-option warp=9 --exploration off --fatal-sample 7"
        " --allow-inconclusive TOY-2 --hang-timeout 9"
    )
    told = (
        "tp 2",
        "policy terminal",
        "exploration off",
        "scenarios toy/refits",
        "may be inconclusive: TOY-2",
        "lane options warp=9",
        "hang timeout 9 s",
        "fatal sample 7",
    )
    for setting in told:
        assert setting in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--model-path", "m", "--no-such-option"), "--no-such-option"),
        (("--model-path", "/no/such/model"), "/no/such/model"),
        (("--fake-version", "0.1"), "0.1"),
    ],
)
def test_serve_refuses_what_sglangs_launcher_would_refuse(cli, arguments, told):
    code, out, err = cli("serve", *arguments)
    assert code == 4
    assert told in out + err
