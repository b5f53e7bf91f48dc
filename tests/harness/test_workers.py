"""How many worker processes a run has: by the clock of its lane, unless the user says."""

from __future__ import annotations

import dataclasses

import pytest

from harness.errors import UsageError
from harness.lanes.info import info_of
from harness.run import WAITING, workers_of
from tests.harness.toys import ToyLane

VIRTUAL = info_of(ToyLane())
REAL = dataclasses.replace(VIRTUAL, clock="real")
HURRIED = dataclasses.replace(VIRTUAL, clock="scaled", scale=0.1)
UNHURRIED = dataclasses.replace(VIRTUAL, clock="scaled", scale=1.0)


@pytest.fixture(autouse=True)
def three_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)


@pytest.mark.parametrize(
    ("info", "auto", "two"),
    [(VIRTUAL, 3, 2), (HURRIED, 1, 2), (UNHURRIED, WAITING, 2), (REAL, 1, 1)],
    ids=["virtual", "hurried", "as slow as real", "real"],
)
def test_workers_by_clock(info, auto, two):
    assert (workers_of("auto", info), workers_of("2", info)) == (auto, two)


def test_no_machine_gives_more_than_eight(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)))
    assert (workers_of("auto", VIRTUAL), workers_of("20", VIRTUAL)) == (8, 20)


@pytest.mark.parametrize("text", ["0", "-1", "some", "", "1.5", "٣", "9" * 30])
def test_what_is_no_number_is_refused_on_every_lane(text):
    for info in (VIRTUAL, REAL):
        with pytest.raises(UsageError, match="is neither a positive number nor auto"):
            workers_of(text, info)


def test_there_is_an_end_to_workers():
    assert workers_of("256", VIRTUAL) == 256
    with pytest.raises(UsageError, match="-n 100000: at most 256 worker processes"):
        workers_of("100000", REAL)
