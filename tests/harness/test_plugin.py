from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import shadow
from harness.cli import invoke

pytest_plugins = ["pytester"]

ROOT = Path(shadow.HOME)
OFF = ("--exploration", "off")


@pytest.fixture
def suite(pytester, toys_installed, monkeypatch):
    """A package with a suite of its own, importable from the working folder."""
    package = pytester.mkpydir("toysuite")
    (package / "__init__.py").write_text("from tests.harness.toys import toy_suite as suite\n")
    monkeypatch.syspath_prepend(str(pytester.path))
    toys_installed("toy", "toysuite:suite", "refitcheck.suites")
    import importlib.metadata

    points = importlib.metadata.entry_points()
    kept = [p for p in points if p.value != "tests.harness.toys:toy_suite"]

    def entry_points(**select):
        from importlib.metadata import EntryPoints

        return EntryPoints(kept).select(**select)

    monkeypatch.setattr("harness.suites.entry_points", entry_points)
    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return package


def run(pytester, *arguments):
    return pytester.inline_run(*arguments, "-p", "no:cacheprovider", "-p", "no:xdist")


def outcome(pytester, capfd, *arguments):
    recorded = run(pytester, *arguments)
    out, err = capfd.readouterr()
    assert hasattr(recorded, "listoutcomes"), out + err
    passed, skipped, failed = recorded.listoutcomes()
    names = {report.nodeid.split("::")[-1]: report.outcome for report in (*passed, *skipped, *failed)}
    return recorded.ret, names, out + err


TOYS = ("--lane", "toy", "--sut", "toy")


def test_a_suite_is_collected_as_one_item_per_rule_engine_and_client(pytester, suite, capfd):
    code, names, out = outcome(pytester, capfd, "toysuite", *TOYS, "--engine", "fake:0.5.20,0.5.23", *OFF, "-v")
    assert code == 1
    assert names == {
        "TOY-1[fake:0.5.20]": "passed",
        "TOY-2[fake:0.5.20-toy]": "failed",
        "TOY-1[fake:0.5.23]": "passed",
        "TOY-2[fake:0.5.23-toy]": "failed",
    }
    assert "engine fake:0.5.20,0.5.23 in a toy, tp 1   clock: virtual   sut toy, policy resume   seed 20261130" in out


def test_it_works_with_pyargs(pytester, suite, capfd):
    code, names, _ = outcome(pytester, capfd, "--pyargs", "toysuite", *TOYS, "--rule", "TOY-1")
    assert (code, names) == (0, {"TOY-1[fake:0.5.23]": "passed"})


def test_a_failure_is_the_block_alone(pytester, suite, capfd):
    _, _, out = outcome(
        pytester, capfd, "toysuite", *TOYS, "--plant", "careless", "--fault", "e0:flush_cache#1:before:drop"
    )
    block = out[out.index("✗ TOY-2") : out.index("short test summary")]
    assert "  clause   somewhere.py:1" in block
    assert (
        "  replay   refitcheck run --rule TOY-2 --scenario toy/refits --lane toy --engine fake:0.5.23 --sut toy"
        in block
    )
    assert "Traceback" not in out
    assert "pytest_items" not in block


def test_a_harness_error_is_an_error_and_an_unsupported_rule_is_skipped_with_its_reason(
    pytester, suite, capfd, monkeypatch
):
    import tests.harness.toys as toys

    def broken(bench):
        raise KeyError("oops")

    monkeypatch.setattr(toys, "flushes", broken)
    monkeypatch.setattr(toys, "refits", lambda bench: bench.unsupported("a crystal ball"))
    recorded = run(pytester, "toysuite", *TOYS, *OFF, "-rs")
    out = capfd.readouterr().out
    _, skipped, failed = recorded.listoutcomes()
    assert [(r.nodeid.split("::")[-1], r.when) for r in failed] == [("TOY-1[fake:0.5.23]", "setup")]
    assert len(skipped) == 1
    assert "unsupported: a crystal ball" in out
    assert "KeyError: 'oops'" in out


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--engine", "0.1"), "unknown engine version '0.1'"),
        (("--sut", "moon"), "no system under test 'moon'"),
        (("--policy", "hope"), "unknown policy 'hope'"),
        (("--tp", "two"), "--tp 'two' is not a whole number"),
        (("--rule", "NOPE"), "no rule or family 'NOPE'"),
        (("--fatal-sample", "-1"), "--fatal-sample '-1' is less than 0"),
    ],
)
def test_a_wrong_option_is_one_line_and_pytests_usage_error(pytester, suite, capfd, option, told):
    recorded = run(pytester, "toysuite", *TOYS, *option)
    out, err = capfd.readouterr()
    assert recorded.ret == 4
    assert f"ERROR: {told}" in out + err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("xdist", [(), ("-p", "xdist", "-n", "1")])
def test_a_fault_that_meets_no_call_anywhere_is_no_pass(xdist):
    options = ("--rule", "SESS-1", "--exploration", "off", "-p", "no:cacheprovider", "-q", *xdist)
    for fault, code in (("e9:nope#1:before:drop", 1), ("e0:flush_cache#1:before:status400", 0)):
        line = [sys.executable, "-m", "pytest", "--pyargs", "conformance", *options, "--fault", fault]
        done = subprocess.run(line, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert ("met no call of the client: nothing was faulted there" in done.stdout) == bool(code)


def test_junitxml_of_pytest_has_the_exercised_counts(pytester, suite, capfd):
    from junitparser import JUnitXml, Properties

    outcome(pytester, capfd, "toysuite", *TOYS, *OFF, "--junitxml=j.xml")
    (found,) = JUnitXml.fromfile("j.xml")
    counts = {case.name: {p.name: p.value for ps in case.iterchildren(Properties) for p in ps} for case in found}
    assert counts == {"TOY-1[fake:0.5.23]": {"exercised": "1"}, "TOY-2[fake:0.5.23-toy]": {"exercised": "0"}}


def test_failures_are_what_is_violated_and_errors_what_is_inconclusive(pytester, suite, capfd):
    from junitparser import JUnitXml

    hurt = ("--plant", "careless", "--fault", "e0:flush_cache#1:before:drop", "--rule", "TOY-2")
    for more, expected in ((OFF, (0, 1, 0)), ((*OFF, "--allow-inconclusive", "TOY-2"), (0, 0, 1)), (hurt, (1, 0, 0))):
        code, _, out = outcome(pytester, capfd, "toysuite", *TOYS, *more, "--scenario=toy/refits", "--junitxml=j.xml")
        (found,) = JUnitXml.fromfile("j.xml")
        assert (found.failures, found.errors, found.skipped) == expected, out
        assert code == (expected != (0, 0, 1))
        assert not [name for name in ("runner", "nodes", "python", "fixtures") if f"_pytest/{name}.py" in out]
        assert len(re.findall("^[?] TOY-2", out, re.M)) == (expected == (0, 1, 0))


HANGS = ("--sut", "tests.harness.test_watchdog:Sleeps", *OFF)


@pytest.mark.parametrize("more", [OFF, ("--exploration", "full"), HANGS])
def test_the_report_is_the_one_of_a_run(pytester, suite, capfd, monkeypatch, more):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    options = [*TOYS, "--hang-timeout", "77", *more]
    code, _, out = outcome(pytester, capfd, "toysuite", *options, "--refit-report", "p.json", "--refit-summary", "p.md")
    assert code == (more != ("--exploration", "full"))
    assert "\np.json\n" not in out
    assert f"{pytester.path / 'p.json'}\n" in out
    ran = invoke(["run", *options, "-n", "1", "--report", "r.json", "--summary", "r.md"])
    one, other = (json.loads(Path(name).read_text()) for name in ("p.json", "r.json"))
    assert one["exit_code"] == other["exit_code"] == ran
    for name in set(one) - {"started", "seconds", "units"}:
        assert one[name] == other[name], name
    one, other = (re.sub(r"\| \d+ \|$", "", Path(name).read_text(), flags=re.MULTILINE) for name in ("p.md", "r.md"))
    assert one == other


def test_a_report_has_what_was_chosen_and_none_is_written_where_nothing_ran(pytester, suite, capfd):
    outcome(pytester, capfd, "toysuite", *TOYS, *OFF, "--refit-report=r.json", "-k", "TOY-1")
    assert [r["rule"] for r in json.loads(Path("r.json").read_text())["results"]] == ["TOY-1"]
    outcome(pytester, capfd, "toysuite", *TOYS, *OFF, "--refit-report=none.json", "--collect-only")
    assert not Path("none.json").exists()


def test_none_is_written_of_a_run_that_was_interrupted(pytester, suite, capfd):
    name = pytester.makepyfile("def test_x(): raise KeyboardInterrupt")
    options = (*TOYS, *OFF, "--refit-report=r.json", "-p", "no:cacheprovider")
    recorded = pytester.inline_run("toysuite", str(name), *options, no_reraise_ctrlc=True)
    assert recorded.ret == 2
    assert "TOY-2" in capfd.readouterr().out
    assert not Path("r.json").exists()


def test_a_report_that_cannot_be_written_is_told_before_anything_runs(pytester, suite, capfd):
    recorded = run(pytester, "toysuite", *TOYS, *OFF, "--refit-report", "no/r.json")
    assert recorded.ret == 4
    assert "ERROR: no/r.json: no such folder" in "".join(capfd.readouterr()).replace(f"{pytester.path}/", "")


TWO_BROKEN = """
from harness.rules import violated
from harness.scenario import Scenario
from harness.suites import Suite
from tests.harness.toys import refits, rule

def broken(history):
    return violated(allowed=["a"], actual="b", where="refit 0 on e0")

def suite():
    rules = rule("TOY-1", broken, "refit", follows=("TOY-2",)), rule("TOY-2", broken, "refit", mend="flush")
    both = frozenset({"TOY-1", "TOY-2"})
    return Suite("toy", rules, (Scenario("toy/refits", both, refits, "fake only: a toy", side="refit"),))
"""


def test_of_several_findings_it_is_told_where_to_start(pytester, suite, capfd):
    (suite / "__init__.py").write_text(TWO_BROKEN)
    code, names, out = outcome(pytester, capfd, "toysuite", *TOYS, *OFF)
    assert (code, set(names.values())) == (1, {"failed"})
    assert "→ start here: TOY-2 (0.5.23, toy): b\n  where    toy/refits: refit 0 on e0\n  mend     flush\n" in out
    assert "  with it  TOY-1 (likely of it, in the same history)\n" in out
    assert "start here" not in outcome(pytester, capfd, "toysuite", *TOYS, *OFF, "--rule", "TOY-1")[2]


def test_that_refits_fail_without_any_fault_is_told(pytester, suite, capfd):
    from tests.harness import test_misbehaving_clients

    told = "! refits fail without any fault: ImportError: no module named trainer (in toy/refits)"
    raises = f"{test_misbehaving_clients.__name__}:RaisesAtOnce"
    _, _, out = outcome(pytester, capfd, "toysuite", "--lane", "toy", "--sut", raises, *OFF)
    assert out.count(told) == 1
    assert "! refits" not in outcome(pytester, capfd, "toysuite", *TOYS, *OFF)[2]


def test_a_policy_that_the_client_does_not_declare_is_a_warning(pytester, suite, capfd):
    rule = ("--rule", "TOY-1")
    _, names, out = outcome(pytester, capfd, "toysuite", *TOYS, *OFF, *rule, "--side", "both", "--policy", "terminal")
    assert set(names.values()) == {"passed"}, out
    _, _, out = outcome(pytester, capfd, "toysuite", *TOYS, *OFF, "--policy", "terminal")
    assert " warning" in out
    assert "AssertionError" not in out
    remark = "policy terminal is judged, as --policy says; toy declares resume (Caps.policy)"
    assert " ".join(out.split()).count(remark) == 1
    _, _, out = outcome(pytester, capfd, "toysuite", *TOYS, *OFF)
    assert "(Caps.policy)" not in out


def test_the_lane_is_closed_at_the_end(pytester, suite, capfd, monkeypatch):
    from tests.harness.toys import ToyLane

    closed = []
    monkeypatch.setattr(ToyLane, "close", lambda self: closed.append(self))
    outcome(pytester, capfd, "toysuite", *TOYS, *OFF)
    assert len({id(lane) for lane in closed}) == 2


def test_a_run_that_has_nothing_to_do_with_us_sees_nothing_of_us(pytester, suite, capfd):
    pytester.makepyfile("def test_x(): pass")
    code, names, out = outcome(pytester, capfd, "test_a_run_that_has_nothing_to_do_with_us_sees_nothing_of_us.py")
    assert (code, names) == (0, {"test_x": "passed"})
    assert "refitcheck 0" not in out
    assert "policy" not in out


HEAVY = ("numpy", "torch", "msgspec", "typer", "fakes", "conformance", "harness.runner", "harness.suites")


def test_the_plugin_imports_nothing_heavy_until_it_is_needed(tmp_path):
    (tmp_path / "test_x.py").write_text(
        f"import sys\ndef test_x():\n    assert [m for m in {HEAVY!r} if m in sys.modules] == []\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "test_x.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_foreign_package_of_our_name_is_told_with_its_place(tmp_path):
    (tmp_path / "real_runs").mkdir()
    (tmp_path / "real_runs" / "__init__.py").touch()
    code = "from harness.shadow import shadowed; print('\\n'.join(shadowed()))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; {code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    told = f"package real_runs is shadowed: Python finds {tmp_path / 'real_runs'}, ours is {ROOT / 'real_runs'}"
    assert done.stdout.strip() == told


def test_options_that_another_plugin_owns_stay_with_it(pytester, suite, capfd):
    pytester.makepyfile(other="def pytest_addoption(parser):\n    parser.addoption('--seed', default='theirs')\n")
    recorded = pytester.inline_run("toysuite", *TOYS, *OFF, "--refitcheck-seed", "5", "-p", "other")
    assert "seed 5" in capfd.readouterr().out
    assert recorded.ret == 1


def test_items_that_share_explored_histories_stay_on_one_worker():
    from harness.pytest_items import _groups
    from harness.scenario import Scenario
    from harness.suites import Suite
    from tests.harness.toys import book, flush_answered, rule

    def scenario(name, *rules, explore=True):
        return Scenario(name, frozenset(rules), lambda bench: None, "fake only: a toy", explore=explore)

    rules = tuple(rule(f"X-{i}", flush_answered) for i in range(5))
    scenarios = (
        scenario("a", "X-0", "X-1"),
        scenario("b", "X-1", "X-2"),
        scenario("c", "X-2", "X-3", explore=False),
        scenario("d", "X-3", "X-4"),
    )
    groups = _groups(book(Suite("s", rules, scenarios)))
    assert groups["X-0"] == groups["X-1"] == groups["X-2"] == "explored-1"  # no rule's name: it stands in every id
    assert groups["X-3"] == groups["X-4"] == "explored-2"
    assert set(_groups(book(Suite("s", rules[:3], scenarios[:1])))) == {"X-0", "X-1"}


def test_the_conformance_suites_run_from_any_folder_and_items_of_a_group_on_one_worker(tmp_path):
    rules = ("PAUSE-1", "PAUSE-2", "LOCK-2", "SESS-51")
    options = ["--engine", "fake:0.5.21", "--policy", "quarantine", "--tp", "1", *OFF]
    options += [argument for rule in rules for argument in ("--rule", rule)]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--pyargs",
        "conformance",
        *options,
        "-n",
        "2",
        "-v",
        "-p",
        "no:benchmark",
    ]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--refit-report", "r.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert "engine fake:0.5.21 in process, tp 1" in done.stdout
    assert "policy quarantine" in done.stdout
    ran = {rule: worker for worker, rule in re.findall(r"\[(gw\d)\].*::(\S+)\[", done.stdout)}
    assert set(ran) == set(rules), done.stdout + done.stderr
    assert len({ran["PAUSE-1"], ran["PAUSE-2"], ran["LOCK-2"]}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    found = json.loads((tmp_path / "r.json").read_text())
    assert {r["rule"]: r["status"] for r in found["results"]} == dict.fromkeys(rules, "held")
    assert found["exit_code"] == 0


def test_a_client_that_hangs_is_interrupted_and_its_line_is_told(pytester, suite, capfd):
    hung = ("--lane", "toy", "--sut", "tests.harness.test_watchdog:Sleeps", "--hang-timeout", "77", *OFF)
    code, names, out = outcome(pytester, capfd, "toysuite", *hung, "--rule", "TOY-2")
    assert (code, set(names.values())) == (1, {"failed"})
    assert "the client hung in " in out
    assert "time.sleep(soon())" in out


@pytest.mark.parametrize(
    ("workers", "dist", "ours", "becomes"),
    [
        (2, "no", True, "loadgroup"),
        (2, "load", True, "loadgroup"),
        (2, "worksteal", True, "worksteal"),
        (2, "load", False, "load"),
        (None, "no", True, "no"),
    ],
)
def test_loadgroup_is_set_for_our_runs_on_several_workers_and_no_other(monkeypatch, workers, dist, ours, becomes):
    from types import SimpleNamespace

    import refitcheck_plugin as plugin

    monkeypatch.setattr(plugin, "_ours", lambda config: ours)
    config = SimpleNamespace(option=SimpleNamespace(numprocesses=workers, dist=dist))
    plugin.pytest_cmdline_main(config)
    assert config.option.dist == becomes
