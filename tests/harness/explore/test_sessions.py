"""How a client may find out whether the end of a session that failed took effect."""

from __future__ import annotations

import pytest

from harness.explore.invariants import check
from tests.conformance.tape import Tape

BEGIN, END = "begin_weight_update", "end_weight_update"
OPEN = {"success": False, "message": "a weight-update session is already open; call end_weight_update() first"}
NONE = {"success": False, "message": "no weight-update session is open; call begin_weight_update() first"}
Calls = list[tuple[str, int | None, object]]


def found(calls: Calls) -> set[str]:
    tape = Tape()
    with tape.refit():
        for op, status, body in calls:
            if op == "bucket":
                tape.bucket()
            else:
                tape.sut(op, {}, status, body, **({"error": "dropped"} if status is None else {}))
    whole = Tape()
    with whole.refit():
        whole.sut(BEGIN)
        whole.bucket()
        whole.sut(END)
    return {b.invariant for b in check(tape.history, whole.history)} & {"one_session", "failure_is_told"}


AGAIN: Calls = [(BEGIN, 200, ...), ("bucket", 200, ...), (END, 200, ...)]


@pytest.mark.parametrize(
    "failed", [(END, None, ...), (END, 500, {"success": False, "message": "boom"})], ids=["silence", "500"]
)
def test_end_is_asked_again_before_the_next_begin(failed):
    begun: Calls = [(BEGIN, 200, ...), ("bucket", 200, ...), failed]
    assert "one_session" not in found([*begun, (END, 200, ...), *AGAIN])
    assert "one_session" not in found([*begun, (END, 400, NONE), *AGAIN])


def test_an_end_that_finds_none_open_fails_no_refit_that_begins_and_ends_after_it():
    assert found([(END, 400, NONE), *AGAIN]) == {"one_session"}  # nothing was begun: it had no reason to ask
    before: Calls = [(BEGIN, 200, ...), (END, 200, ...)]
    assert "failure_is_told" in found([*before, (END, 400, NONE)])


@pytest.mark.parametrize("status", [400, 500, None])
def test_begin_may_be_told_that_a_session_is_open_after_an_end_that_failed(status):
    refused = (END, status, {"success": False, "message": "boom"} if status else ...)
    tried: Calls = [(BEGIN, 200, ...), ("bucket", 200, ...), refused, (BEGIN, 400, OPEN), (END, 200, ...)]
    assert "one_session" not in found([*tried, *AGAIN])


def test_a_begin_where_nothing_ended_the_session_is_inside():
    assert "one_session" in found([(BEGIN, 200, ...), ("bucket", 200, ...), *AGAIN])


def test_an_end_after_one_that_said_yes_is_one_too_many():
    assert "one_session" in found([*AGAIN, (END, 400, NONE)])
