from __future__ import annotations

from typing import Any

from tests.conformance.judged import breaks, holds
from tests.conformance.judged_coll import INIT, TOLD, UPDATE, join, joining, update, whole
from tests.conformance.tape import Tape

# -- alone, in step ----------------------------------------------------------------------------------------------------


def alone(bound: str = "cuda:0", **rest: Any) -> Tape:
    tape = whole(facts=("bound_default_group",), **rest)
    tape.fact("default_group", engine="", bound=bound, expected="cuda:0")
    return tape


@holds("COLL-4")
def the_default_group_is_as_before() -> Tape:
    return alone()


@breaks("COLL-4", "bound to None")
def the_default_group_lost_its_device() -> Tape:
    return alone("None")


@breaks("COLL-4", "RefitError: split")
def the_join_never_ended() -> Tape:
    return alone(error="split")


@holds("COLL-5")
def with_a_spare_rank() -> Tape:
    return whole(facts=("ragged",))


@breaks("COLL-5", "RefitError: rank 1")
def a_rank_left() -> Tape:
    return whole(facts=("ragged",), error="rank 1 did not come")


def under_traffic(mode: str | None, ended: bool = False) -> Tape:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    with tape.refit():
        join(tape)
        if mode:
            tape.sut("pause_generation", {"mode": mode})
        if ended:
            tape.finish(running, body=tape.answer([1]))
        update(tape)
    if not ended:
        tape.finish(running, body=tape.answer([1]))
    return tape


@holds("COLL-6")
def retracted_requests_wait() -> Tape:
    return under_traffic("retract")


@breaks("COLL-6", "paused: in_place")
def frozen_requests() -> Tape:
    return under_traffic("in_place")


@breaks("COLL-6", "paused: no")
def running_requests() -> Tape:
    return under_traffic(None)


@holds("COLL-10")
def contiguous_views() -> Tape:
    return whole(facts=("transposed",))


@breaks("COLL-10", "strided view")
def strided_views() -> Tape:
    return whole(facts=("transposed",), contiguous=False)


@breaks("COLL-10", "dropped its buffer")
def a_copy_nobody_keeps() -> Tape:
    tape = Tape()
    tape.fact("transposed", engine="")
    with tape.refit():
        join(tape)
        update(tape)
        tape.trainer("buffer_dropped", group="g", number=0)
    return tape


# -- waits -------------------------------------------------------------------------------------------------------------


def silent(error: str, ok: bool = False) -> Tape:
    tape = Tape()
    with tape.refit(error="" if ok else error, deadline_s=20.0):
        tape.sut(INIT, joining(), None, error="timeout", fault="e0:init_weights_update_group#1:before:hang")
    return tape


@holds("COLL-7")
def the_engine_is_named() -> Tape:
    return silent("connect failed on e0: timeout")


@holds("COLL-7")
def the_rank_is_named() -> Tape:
    return silent("rank 1 did not join")


@breaks("COLL-7", "RefitError: it failed")
def nobody_is_named() -> Tape:
    return silent("it failed")


@breaks("COLL-7", "the client reported success")
def silence_taken_for_a_yes() -> Tape:
    return silent("", ok=True)


@breaks("COLL-7", "that nothing would have ended")
def a_hang() -> Tape:
    tape = Tape()
    with tape.refit(error="hang"):
        tape.trainer("hang", group="g", waited_for="rank 1")
    return tape


def refused(*, wait: float, status: int | None = 400) -> Tape:
    tape = Tape()
    with tape.refit(error="no"):
        other = tape.start(UPDATE, TOLD, origin="sut", engine="e1")
        tape.sut(UPDATE, TOLD, 400, engine="e0")
        tape.finish(other, status, engine="e1", error="" if status else "timeout", dt=wait)
    return tape


@holds("COLL-9")
def let_go_of_at_once() -> Tape:
    return refused(wait=0.1)


@breaks("COLL-9", "45.0 s after")
def let_go_of_at_the_deadline() -> Tape:
    return refused(wait=45.0)


@breaks("COLL-9", "timeout")
def never_let_go_of() -> Tape:
    return refused(wait=1.0, status=None)


# -- the lock, the environment -----------------------------------------------------------------------------------------


def locked(*ops: dict[str, Any], error: str = "", took: float = 1.0, held: bool = False) -> Tape:
    tape = Tape()
    if held:
        tape.fact("lock_held", engine="", index=1, owner="somebody")
    with tape.refit(1, error=error, deadline_s=20.0):
        for op in ops:
            tape.trainer("lock", **op)
        tape.t += took
    return tape


TAKE, GIVE = {"op": "acquire", "owner": "me"}, {"op": "release", "owner": "me", "mine": True}


@holds("COLL-11")
def taken_and_given_back() -> Tape:
    return locked(TAKE, GIVE)


@holds("COLL-11")
def taken_by_somebody_else() -> Tape:
    return locked(error="held by somebody", held=True)


@breaks("COLL-11", "me still has it")
def kept() -> Tape:
    return locked(TAKE, error="failed")


@breaks("COLL-11", "not its own")
def another_ones_given_back() -> Tape:
    return locked(TAKE, {**GIVE, "mine": False})


@breaks("COLL-11", "after 30.0 s")
def waited_for_too_long() -> Tape:
    return locked(error="held by somebody", held=True, took=30.0)


@breaks("COLL-11", "RefitError: busy")
def the_holder_is_not_named() -> Tape:
    return locked(error="busy", held=True)


def environment(cumem: str | None, expected: str | None) -> Tape:
    tape = Tape()
    tape.fact("environment", engine="", transport="x", cumem=cumem, expected=expected)
    return tape


@holds("COLL-12")
def as_the_engines_have_it() -> Tape:
    return environment("0", "0")


@breaks("COLL-12", "'0'")
def set_for_nothing() -> Tape:
    return environment("0", None)


@breaks("COLL-12", "''")
def joined_without() -> Tape:
    tape = environment("0", "0")
    tape.trainer("group_join", group="g", backend="nccl", cumem="")
    return tape


@breaks("COLL-12", "unhandled cuda error")
def nccl_could_not_map() -> Tape:
    return whole(facts=("nccl",), error="unhandled cuda error")
