from __future__ import annotations

from typing import Any

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.tape import Tape

A, B, PROMPT = [1, 1], [2, 2], (5, 6)
INIT, DESTROY = "init_weights_update_group", "destroy_weights_update_group"
UPDATE = "update_weights_from_distributed"
NAMES, DTYPES, SHAPES = ["q", "k"], ["bfloat16", "bfloat16"], [[4, 2], [2, 2]]
TOLD = {"names": NAMES, "dtypes": DTYPES, "shapes": SHAPES, "group_name": "g"}


def joining(offset: int = 1, world: int = 2, group: str = "g") -> dict[str, Any]:
    return {
        "master_address": "h",
        "master_port": 1,
        "rank_offset": offset,
        "world_size": world,
        "group_name": group,
        "backend": "gloo",
    }


def join(tape: Tape, engine: str = "e0", status: int | None = 200, offset: int = 1, world: int = 2, **rest: Any) -> int:
    return tape.sut(INIT, joining(offset, world), status, engine=engine, **rest)


def destroy(tape: Tape, engine: str = "e0", status: int = 200, **rest: Any) -> int:
    return tape.sut(DESTROY, {"group_name": "g"}, status, engine=engine, **rest)


def cast(tape: Tape, shapes: Any = SHAPES, dtypes: Any = DTYPES, contiguous: bool = True) -> None:
    for dtype, shape in zip(dtypes, shapes, strict=True):
        tape.trainer("broadcast", group="g", dtype=dtype, shape=shape, contiguous=contiguous)


def update(tape: Tape, engine: str = "e0", status: int | None = 200, early: bool = False, **sent: Any) -> None:
    if early:
        cast(tape, **sent)
    call = tape.start(UPDATE, TOLD, origin="sut", engine=engine)
    if not early:
        cast(tape, **sent)
    tape.finish(call, status, engine=engine, error="" if status else "timeout")


def asked(tape: Tape, tokens: list[int] = B) -> Tape:
    tape.gen(tokens, prompt=PROMPT, origin="traffic")
    return tape


def whole(
    *, tokens: list[int] = B, error: str = "", early: bool = False, facts: tuple[str, ...] = (), **sent: Any
) -> Tape:
    """One engine joins, gets one update, is asked; the client closes."""
    tape = Tape()
    tape.expect(0, A, PROMPT)
    tape.expect(1, B, PROMPT)
    for fact in facts:
        tape.fact(fact, engine="")
    with tape.refit(seed=1, error=error, deadline_s=60.0):
        tape.trainer("group_open", group="g", live=1)
        join(tape)
        tape.trainer("GROUP_READY", world_size=2, engines=1)
        update(tape, early=early, **sent)
    asked(tape, tokens)
    tape.fact("closing", engine="")
    destroy(tape)
    return tape


@holds("COLL-1", "COLL-3", "COLL-8", "COLL-13", "COLL-14")
def one_refit() -> Tape:
    return whole()


@breaks("COLL-1", "1 broadcasts for 2")
def one_of_two_is_broadcast() -> Tape:
    return whole(shapes=SHAPES[:1], dtypes=DTYPES[:1])


@breaks("COLL-1", "q announced as")
def another_order() -> Tape:
    return whole(shapes=SHAPES[::-1])


@breaks("COLL-1", "of seeds [0]")
def other_values() -> Tape:
    return whole(tokens=A)


@breaks("COLL-8", "e0 was not told of")
def broadcast_first() -> Tape:
    return whole(early=True)


@leaves_open("COLL-1", "COLL-2", "COLL-3", "COLL-4", "COLL-5", "COLL-6", "COLL-7", "COLL-9", "COLL-10", "COLL-12")
def a_tensor_refit() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket()
    return tape


# -- membership --------------------------------------------------------------------------------------------------------


def twice(*, destroyed: bool) -> Tape:
    tape = Tape()
    with tape.refit(0):
        join(tape)
        update(tape)
    with tape.refit(1, error="" if destroyed else "taken"):
        if destroyed:
            destroy(tape)
        join(tape, status=200 if destroyed else 400)
    return tape


@holds("COLL-2")
def destroyed_between() -> Tape:
    return twice(destroyed=True)


@breaks("COLL-2", "is still in 'g'")
def never_destroyed() -> Tape:
    return twice(destroyed=False)


@breaks("COLL-2", "never joined 'g'")
def the_next_life_is_not_in() -> Tape:
    tape = Tape()
    with tape.refit(0):
        join(tape)
        update(tape)
    with tape.refit(1):
        tape.sut(UPDATE, TOLD, 400, incarnation=1)
    return tape


@holds("COLL-2")
def a_lost_answer_accuses_nobody() -> Tape:
    tape = Tape()
    with tape.refit(0, error="lost"):
        join(tape, status=None, error="dropped")
    with tape.refit(1):
        join(tape)
        update(tape)
    return tape


def pair(*numbers: tuple[int, int], error: str = "", fault: str = "") -> Tape:
    tape = Tape()
    with tape.refit(error=error):
        for at, (offset, world) in enumerate(numbers):
            join(tape, f"e{at}", offset=offset, world=world, fault=fault if at == 0 else "")
        tape.trainer("GROUP_READY", world_size=numbers[0][1], engines=len(numbers))
    return tape


@holds("COLL-3", "COLL-13")
def two_engines() -> Tape:
    return pair((1, 3), (2, 3))


@breaks("COLL-3", "rank_offset 1 of world size 3")
def the_same_offset() -> Tape:
    return pair((1, 3), (1, 3))


@breaks("COLL-3", "world size 2")
def without_the_trainer() -> Tape:
    return pair((1, 2), (2, 2), error="nobody came")


@leaves_open("COLL-3")
def numbers_of_a_faulted_refit() -> Tape:
    return pair((1, 3), error="dropped", fault="e0:x#1:before:drop")


@breaks("COLL-13", "world size 2")
def ready_with_another_size() -> Tape:
    tape = Tape()
    with tape.refit():
        join(tape, "e0", world=3)
        join(tape, "e1", offset=2, world=3)
        tape.trainer("GROUP_READY", world_size=2, engines=2)
    return tape


@breaks("COLL-13", "ready before")
def ready_before_the_answer() -> Tape:
    tape = Tape()
    with tape.refit():
        call = tape.start(INIT, joining(), origin="sut")
        tape.trainer("GROUP_READY", world_size=2, engines=1)
        tape.finish(call)
    return tape


@breaks("COLL-14", "2 groups are open")
def two_groups() -> Tape:
    tape = whole()
    tape.trainer("group_open", group="h", live=2)
    return tape


@breaks("COLL-14", "still in 'g'")
def left_behind() -> Tape:
    tape = Tape()
    with tape.refit():
        join(tape)
    tape.fact("closing", engine="")
    return tape


@holds("COLL-14")
def a_dead_engine_is_not_left_behind() -> Tape:
    tape = Tape()
    with tape.refit():
        join(tape)
    tape.call("model_info", status=None, error="refused", method="GET")
    tape.fact("closing", engine="")
    return tape


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


# -- what engines answer -----------------------------------------------------------------------------------------------


def pushed(
    kind: str, status: int | None, message: str = "ok", tokens: list[int] | None = None, seeds: tuple[int, ...] = ()
) -> Tape:
    tape = Tape()
    tape.expect(0, A, PROMPT)
    tape.expect(1, B, PROMPT)
    tape.fact("push", kind=kind, seeds=list(seeds))
    if status is None:
        tape.call(UPDATE, TOLD, None, error="dropped")
    else:
        tape.message(UPDATE, status, message, TOLD)
    if tokens is not None:
        asked(tape, tokens)
    return tape


def with_cast(kind: str, taken: bool, status: int | None = 200, message: str = "ok", **rest: Any) -> Tape:
    tape = Tape()
    tape.expect(0, A, PROMPT)
    tape.expect(1, B, PROMPT)
    tape.fact("push", kind=kind, seeds=list(rest.pop("seeds", ())))
    tape.message(UPDATE, status or 0, message, TOLD)
    tape.fact("broadcast", engine="", kind=kind, taken=taken)
    if "tokens" in rest:
        asked(tape, rest["tokens"])
    return tape


def told(kind: str, op: str, status: int | None, message: str = "", error: str = "dropped") -> Tape:
    tape = Tape()
    _tell(tape, kind, op, status, message, error)
    return tape


def _tell(tape: Tape, kind: str, op: str, status: int | None, message: str = "", error: str = "dropped") -> None:
    tape.fact("asked", kind=kind)
    if status is None:
        tape.call(op, {"group_name": "g"}, None, error=error)
    else:
        tape.message(op, status, message, {"group_name": "g"})


@holds("COLL-51")
def a_set_arrives() -> Tape:
    return with_cast("group", True, tokens=B, seeds=(1,))


@breaks("COLL-51", "of seeds [0]")
def a_set_is_lost() -> Tape:
    return with_cast("group", True, tokens=A, seeds=(1,))


@holds("COLL-52")
def a_bucket_arrives() -> Tape:
    return with_cast("group-bucket", True, tokens=B, seeds=(1,))


@breaks("COLL-52", "left alone")
def a_bucket_is_left_alone() -> Tape:
    return with_cast("group-bucket", False, tokens=B, seeds=(1,))


@holds("COLL-53")
def taken_name() -> Tape:
    return told("taken-name", INIT, 400, "... The specified group name has already been created, please ...")


@breaks("COLL-53", "200")
def taken_name_again() -> Tape:
    return told("taken-name", INIT, 200)


def destroyed(second: int) -> Tape:
    tape = told("destroy", DESTROY, 200, "Succeeded to destroy custom process group.")
    words = "The group to be destroyed does not exist." if second == 400 else "fine"
    _tell(tape, "destroy-missing", DESTROY, second, words)
    return tape


@holds("COLL-54")
def destroyed_once() -> Tape:
    return destroyed(400)


@breaks("COLL-54", "200 fine")
def destroyed_twice() -> Tape:
    return destroyed(200)


@holds("COLL-55")
@breaks("COLL-56", "400")
@breaks("COLL-57", "400")
def no_group_is_refused() -> Tape:
    return pushed("no-group", 400, "Failed to receive weights: Group conformance not in []. Please call")


@holds("COLL-57")
@breaks("COLL-55", "partially updated")
def no_group_is_partial() -> Tape:
    words = "The full weights of the ModelRunner are partially updated. Please discard the whole weights."
    return pushed("no-group", 400, f"Failed: Group. {words}")


@holds("COLL-56")
def no_group_kills() -> Tape:
    return pushed("no-group", None)


@holds("COLL-58")
def no_name_kills() -> Tape:
    return told("empty-name", INIT, None)


@breaks("COLL-58", "400")
def no_name_is_refused() -> Tape:
    return told("empty-name", INIT, 400, "Group name cannot be empty")


@holds("COLL-59")
def torch_in_a_dtype() -> Tape:
    return with_cast("torch-dtype", False, 400, "module 'torch' has no attribute 'torch.bfloat16'")


@breaks("COLL-59", "200")
def torch_is_understood() -> Tape:
    return with_cast("torch-dtype", True)


@holds("COLL-60")
def lists_are_cut() -> Tape:
    return with_cast("unequal", True)


@breaks("COLL-60", "400")
def lists_are_refused() -> Tape:
    return with_cast("unequal", False, 400, "zip() argument 3 is shorter than arguments 1-2")


@holds("COLL-61")
@breaks("COLL-67", "400")
def a_bucket_is_refused() -> Tape:
    return with_cast("unequal-bucket", False, 400, "Failed: zip() argument 3 is shorter than arguments 1-2")


@holds("COLL-67")
@breaks("COLL-61", "200")
def a_bucket_is_cut() -> Tape:
    return with_cast("unequal-bucket", True)


PARTLY = "The full weights of the ModelRunner are partially updated. Please discard the whole weights."


@holds("COLL-62")
def partly_loaded() -> Tape:
    return pushed("load-fails", 400, PARTLY, [7, 7])


@breaks("COLL-62", "of seeds [0]")
def rolled_back() -> Tape:
    return pushed("load-fails", 400, PARTLY, A)


def late(*, taken: bool, tokens: list[int]) -> Tape:
    tape = with_cast("refused", taken, 400, "outside")
    tape.fact("push", kind="out-of-step", seeds=[1])
    tape.message(UPDATE, 200, "ok", TOLD)
    return asked(tape, tokens)


@holds("COLL-63")
def the_next_one_takes_it() -> Tape:
    return late(taken=False, tokens=B)


@breaks("COLL-63", "it was taken")
def the_refused_one_takes_it() -> Tape:
    return late(taken=True, tokens=A)


def lonely(*, answered: bool) -> Tape:
    tape = Tape()
    joining_ = tape.start(INIT, joining())
    if answered:
        tape.finish(joining_)
    _tell(tape, "meanwhile", "flush_cache", 200 if answered else None, "flushed", "timeout")
    tape.fact("still_open", kind="alone", open=not answered)
    return tape


@holds("COLL-64")
def it_waits() -> Tape:
    return lonely(answered=False)


@breaks("COLL-64")
def it_joins_alone() -> Tape:
    return lonely(answered=True)


def gone(*, lives: bool) -> Tape:
    tape = Tape()
    tape.fact("push", kind="trainer-gone", seeds=[0])
    tape.message(UPDATE, 400, "Failed to receive weights: [...] Connection closed by peer", TOLD)
    tape.call(
        "generate", {"input_ids": [1]}, 200 if lives else None, tape.answer([1]), error="" if lives else "refused"
    )
    return tape


@holds("COLL-65")
def it_hears_and_lives() -> Tape:
    return gone(lives=True)


@breaks("COLL-65", "refused")
def it_hears_and_dies() -> Tape:
    return gone(lives=False)


@holds("COLL-66")
def no_nccl() -> Tape:
    return told("no-nccl", INIT, 400, "Distributed package doesn't have NCCL built in.")


@breaks("COLL-66", "200")
def nccl_on_a_cpu() -> Tape:
    return told("no-nccl", INIT, 200)
