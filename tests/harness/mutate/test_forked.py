from __future__ import annotations

import os
import signal

import pytest

from harness.mutate import scout
from harness.mutate.budget import Budget
from harness.mutate.forked import forked
from harness.mutate.jobs import Job, Step
from harness.mutate.pool import Pool
from harness.mutate.program import Program
from tests.harness.mutate.samples import Says


def leave_a_fork():
    """A process that holds all that this one has open."""
    if os.fork() == 0:
        _pause()
    return []


def _pause():
    signal.pause()


def test_the_value_comes_back_however_large():
    assert forked(lambda: b"x" * (3 << 20), 60.0) == b"x" * (3 << 20)


def test_a_value_does_not_wait_for_what_was_left_running():
    assert forked(lambda: leave_a_fork() or 7, 60.0) == 7


def test_an_end_does_not_wait_for_it_either():
    assert forked(lambda: leave_a_fork() or os._exit(0), 60.0) == "it ended by itself"


def test_silence_is_ended():
    assert forked(_pause, 0.2) == "no end within 0 s"


def test_a_test_that_leaves_a_process_running_keeps_the_baseline_and_nobody_is_blamed():
    checks = [Says("forks", leave_a_fork), Says("adds", list)]
    found = scout.baseline(checks, Program([]), lambda: None, lambda: None)
    assert [m.findings for m in found.measured] == [[], []]


def test_the_one_that_ends_the_process_is_named_beside_one_that_leaves_a_process():
    checks = [Says("forks", leave_a_fork), Says("ends", lambda: os._exit(0)), Says("adds", list)]
    found = scout.baseline(checks, Program([]), lambda: None, lambda: None)
    assert [bool(m.findings) for m in found.measured] == [False, True, False]
    assert found.measured[1].findings[0].text == "it ends the process on unmutated code (it ended by itself)"


@pytest.mark.parametrize("code", [0, 3])
def test_a_mutant_that_dies_is_seen_at_once_though_its_pipe_is_held_open(code, monkeypatch):
    for limit in ("IDLE_MINIMUM_S", "WALL_MINIMUM"):  # that no limit ends it: the test's own would
        monkeypatch.setattr(f"harness.mutate.pool.{limit}", 1e6)
    budget = Budget()
    budget.start()
    check = Says("dies", lambda: leave_a_fork() or os._exit(code))
    [(_, report)] = list(Pool([check], budget, 1).run([Job("m", lambda: None, (Step(0, 0, 0.0, 0.0),))]))
    budget.stop()
    assert (report.ending, report.text) == ("crash", f"the process ended by itself (exit {code})")
