from __future__ import annotations

import pytest

from harness.mutate import table
from harness.mutate.baseline import Baseline
from harness.mutate.mutant import Result
from harness.mutate.plan import Outcome


def outcome(*verdicts, **more):
    results = [Result(f"m{n}", verdict, target="a:b") for n, verdict in enumerate(verdicts)]
    return Outcome(results, Baseline([], [], []), [], [], 0.0, **more)


def last(*verdicts, **more):
    return table.lines(outcome(*verdicts, **more))[-1]


def test_nothing_that_counts_is_no_score_and_not_one_of_nought_percent():
    assert table.score([]) is None
    assert "no score" in last()
    assert "no score" in last("equivalent", "error")
    assert "0.0" not in "".join(table.lines(outcome("equivalent", skipped=3)))
    assert "score 0.0 %" in last("survived")


def test_a_crash_and_a_time_out_count_and_it_is_said():
    assert "score 75.0 % (1 crash and 1 timeout counted as noticed) " in last("killed", "crash", "timeout", "survived")
    assert "counted" not in last("killed", "survived")


def test_what_was_left_out_says_why():
    assert "3 not touched by the change" in last("killed", skipped=3)
    assert "2 not run" in last("killed", left=2)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (("killed", "survived"), "interrupted: 2 finished and kept, 7 left; "),
        ((), "interrupted: none of 7 mutants was run; "),
    ],
)
def test_an_interrupted_session_says_what_is_left(verdicts, said):
    assert last(*verdicts, left=7, interrupted=True).startswith(said)
