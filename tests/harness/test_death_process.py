"""`--death process`: SGLang's Engine takes its trainer along, and the run says so instead of judging what never was."""

from __future__ import annotations

import json

import pytest

from harness.cli import invoke
from tests.harness.toys import without_progress

DIES = ("--death", "process", "--scenario", "refit/envelope/two-refits", "--rule", "SESS-1")
FAULT = ("--fault", "e0:flush_cache#1:before:die")


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run_(*options):
        code = invoke(("run", *options))
        out, err = capsys.readouterr()
        return code, " ".join(out.split()), without_progress(err)

    return run_


def test_an_engine_takes_its_clients_process_along_and_the_verdict_says_so(run, tmp_path):
    report = tmp_path / "r.json"
    code, out, err = run(*DIES, *FAULT, "-n", "1", "--report", str(report))
    assert (code, err) == (2, "")
    why = "engine e0 died of SIGKILL: killed from outside, and with it the client's process (--death process)"
    assert why in out
    assert "engines took their client's process with them, and nothing after that was judged: refit/envelope/" in out
    assert "--death process" in json.loads(report.read_text())["results"][0]["replay"]


def test_the_other_scenarios_go_on_in_a_process_of_their_own(run):
    scenarios = ("--scenario", "refit/envelope/two-refits-of-a-fleet", "--scenario", "refit/envelope/two-refits")
    options = ("--death", "process", *scenarios, "--rule", "SESS-1", "--fault", "e1:flush_cache#1:before:die")
    code, out, err = run(*options, "-n", "1")
    assert (code, err) == (0, ""), out
    assert "nothing after that was judged: refit/envelope/two-refits-of-a-fleet" in out
    assert "held 1" in out


def test_where_no_engine_dies_it_changes_nothing(run):
    assert run(*DIES, "--exploration", "off", "-n", "1")[0] == 0


def test_engines_elsewhere_die_alone(run):
    told = "refitcheck: --death process: the engines of lane http are no part of the client's process\n"
    assert run(*DIES, "--lane", "http") == (4, "", told)
    assert run("--death", "slowly") == (4, "", "refitcheck: unknown death 'slowly'; one of raise, process\n")
