from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.mutate import catalogue, replay
from harness.mutate.baseline import Baseline
from harness.mutate.edits import Drop, Edits
from harness.mutate.mutant import Mutant, Result
from harness.mutate.plan import Outcome
from tests.harness.mutate.conftest import mutate

RECORDINGS = Path(__file__).parents[2] / "recorded" / "histories"
SMALL = "0.5.23-tp1-llama-float32-plain-fatal.jsonl.xz"


def outcome(**verdicts):
    results = [Result(name.replace("_", "-"), verdict, by="a recording") for name, verdict in verdicts.items()]
    return Outcome(results, Baseline([], [], []), [], [], 0.0)


def test_only_mutants_of_the_engine_are_judged_and_by_the_recordings_alone():
    op = Edits((Drop("x"),))
    mutants = [
        Mutant("engine", "fakes.engine.core:f", op, frozenset({"ERR-1"})),
        Mutant("planted", "engine:", op, frozenset({"ERR-1"})),
        Mutant("client", "harness.reference.refit:f", op, frozenset({"ERR-1"})),
    ]
    assert [(m.id, m.breaks) for m in replay.engine_side(mutants)] == [
        ("engine", frozenset({"RECORDED"})),
        ("planted", frozenset({"RECORDED"})),
    ]


def test_what_no_recording_shows_has_a_lane_or_stays_a_survivor():
    found = outcome(shown="killed", listed="survived", forgotten="survived")
    replay.settle(found, {"listed": "fake: needs a GPU"}, whole=True)
    assert [(r.verdict, r.detail) for r in found.results] == [
        ("killed", ""),
        ("elsewhere", "fake: needs a GPU"),
        ("survived", ""),
    ]
    assert found.stale == []


def test_a_listed_mutant_that_a_recording_shows_or_that_is_gone_is_stale():
    found = outcome(shown="killed")
    replay.settle(found, {"shown": "fake: x", "gone": "fake: y"}, whole=True)
    assert found.stale == [
        "shown: listed as shown elsewhere, but a recording shows it",
        "gone: listed as shown elsewhere, but no such mutant",
    ]
    found = outcome(shown="killed")
    replay.settle(found, {"gone": "fake: y"}, whole=False)
    assert found.stale == []


def test_every_listed_mutant_exists_and_names_its_lane():
    known = {m.id for m in replay.engine_side(catalogue.load().values())}
    listed = replay.elsewhere()
    assert sorted(set(listed) - known) == []
    assert [
        name
        for name, said in listed.items()
        if not said.startswith(("fake: ", "http: ", "sglang-cpu: ", "sglang-gpu: "))
    ] == []


def test_a_recording_kills_what_it_shows_and_nothing_that_is_listed(tmp_path):
    folder = tmp_path / "histories"
    folder.mkdir()
    shutil.copy(RECORDINGS / SMALL, folder)
    listed = ("receives-nothing", "never-final", "updates-derive-too", "served-while-away")
    ran = mutate(tmp_path, "death-left-out", *listed, "--replay", "histories", "--everything", "-j", "1")
    assert ran.code == 0, ran.out + ran.err
    assert "RECORDED: fatal/" in ran.out
    assert "killed 1   elsewhere 4" in ran.out, "run, since everything is, and shown by no recording as the list says"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--replay", "nowhere"), "nowhere: no recordings (*.jsonl.xz)"),
        (("--replay", "x", "--target", "json"), "--replay judges the catalogue's engine mutants"),
    ],
)
def test_bad_input_is_one_line(tmp_path, args, said):
    ran = mutate(tmp_path, *args)
    assert (ran.code, ran.out) == (4, ""), ran.err
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
