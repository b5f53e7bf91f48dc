from __future__ import annotations

from typing import Any

from tests.conformance.judged import breaks, holds
from tests.conformance.judged_coll import DESTROY, INIT, PROMPT, TOLD, UPDATE, A, B, asked, joining
from tests.conformance.tape import Tape

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
