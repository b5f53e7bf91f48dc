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
