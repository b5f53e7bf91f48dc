"""What exploration finds beside the rules is shown like a broken rule, and decides the exit code."""

from __future__ import annotations

import json

import pytest
from junitparser import JUnitXml

from harness.explore.invariants import CHECKS
from harness.explore.rules import BY_NAME, INVARIANTS
from harness.history_files import read_history
from tests.harness.test_cli import cli  # noqa: F401

MUTE = ("run", "--lane", "toy", "--sut", "tests.harness.toys:MuteSut", "-n", "1")
TOLD = BY_NAME["failure_is_told"]


def test_every_invariant_is_a_rule_of_a_family_of_its_own():
    assert len(INVARIANTS) == len(CHECKS) == 9
    assert {rule.family for rule in INVARIANTS} == {"EXPLORE"}
    for rule, check in zip(INVARIANTS, CHECKS, strict=True):
        assert rule.text.endswith(".")
        assert rule.citations == (f"fault exploration, invariant {check.__name__}",)


def test_a_client_that_only_an_invariant_finds_is_violated(cli, tmp_path):  # noqa: F811
    files = {kind: tmp_path / name for kind, name in (("report", "r.json"), ("junitxml", "j.xml"), ("summary", "s.md"))}
    code, out, _ = cli(*MUTE, *(f"--{kind}={path}" for kind, path in files.items()), "--allow-inconclusive", "TOY")
    assert code == 1
    assert out.startswith(f"✗ {TOLD.id} MUST")
    assert "actual   the error hides it: 'the refit failed'" in out
    assert "fault    e0:flush_cache#1:before:status400" in out
    assert "EXPLORE 8/9" in out
    data = json.loads(files["report"].read_text())
    found = {r["rule"]: r for r in data["results"]}
    assert {rule for rule, r in found.items() if r["status"] == "violated"} == {TOLD.id}
    assert found["TOY-2"]["status"] == "held"
    assert found[TOLD.id]["faults"] == ["e0:flush_cache#1:before:status400"]
    assert data["families"]["EXPLORE"] == {"held": 8, "judged": 9}
    assert "| EXPLORE | 8 | 9 |" in files["summary"].read_text()
    (suite,) = JUnitXml.fromfile(str(files["junitxml"]))
    assert [case.name for case in suite if case.result] == [f"{TOLD.id}[fake:0.5.23-tests.harness.toys:MuteSut]"]


def test_its_reproduce_line_finds_it_again(cli):  # noqa: F811
    _, out, _ = cli(*MUTE)
    (replay,) = [line.split("replay")[1] for line in out.split("✗")[1].splitlines() if "replay" in line]
    arguments = replay.replace("'", "").split()
    assert arguments[:6] == ["refitcheck", "run", "--rule", TOLD.id, "--scenario", "toy/refits"]
    assert "e0:flush_cache#1:before:status400" in arguments
    code, out, _ = cli(*arguments[1:], "-n", "1")
    assert code == 1
    assert f"✗ {TOLD.id}" in out


def test_a_client_that_tells_keeps_them_all_and_each_counts_the_faults_that_met_it(cli):  # noqa: F811
    code, out, _ = cli("run", "--lane", "toy", "--sut", "toy", "-n", "1", "--rule", "EXPLORE")
    assert code == 0
    assert "EXPLORE 9/9" in out
    assert f"{TOLD.id}×8" in out  # one call, nine kinds of faults, of which "partial" needs a fleet


@pytest.mark.parametrize("off", [("--exploration", "off"), ("--rule", "TOY"), ("--scenario", "toy/flushes")])
def test_they_are_no_part_of_a_run_that_explores_nothing(cli, off):  # noqa: F811
    _, out, _ = cli(*MUTE, *off)
    assert "EXPLORE" not in out


def test_a_stored_history_alone_is_not_held_to_them(cli, tmp_path):  # noqa: F811
    cli(*MUTE, "--exploration", "off", "--histories", str(tmp_path))
    path = tmp_path / "toy.refits-0.5.23-tp1-tests.harness.toys.MuteSut.jsonl.xz"
    assert "not judged: EXPLORE, without --beside the fault-free history" in cli("judge", str(path))[1]
    assert cli("judge", str(path), "--rule", "EXPLORE")[0] == 4


def test_a_stored_history_is_held_to_them_beside_the_fault_free_one(cli, tmp_path):  # noqa: F811
    cli(*MUTE, "--histories", str(tmp_path))
    stem = "toy.refits-0.5.23-tp1-tests.harness.toys.MuteSut"
    every = [path for path in tmp_path.iterdir() if path.name.startswith(stem)]
    clean = next(path for path in every if not any(call.fault for call in read_history(path).calls()))
    codes = {cli("judge", str(path), "--beside", str(clean), "--rule", "EXPLORE")[0] for path in every}
    assert codes == {0, 1, 2}  # 2: the fault-free one, of which they say nothing


def test_explain_and_list_know_them(cli):  # noqa: F811
    assert TOLD.text in cli("explain", TOLD.id)[1]
    assert "toy/refits" in cli("explain", TOLD.id)[1]
    assert cli("list")[1].count("EXPLORE-") == 9
