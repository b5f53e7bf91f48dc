from __future__ import annotations

from typing import Any

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.tape import Tape

A, B, PROMPT = [1, 1], [2, 2], (5, 6)


def truth(tape: Tape, engine: str = "e0") -> None:
    tape.expect(0, A, PROMPT, engine=engine)
    tape.expect(1, B, PROMPT, engine=engine)


def exported(tape: Tape, *consumers: tuple[str, str, int]) -> None:
    for number, (sha256, engine, tp_rank) in enumerate(consumers):
        tape.trainer("export", number, export=number, sha256=sha256, consumers=[[engine, tp_rank]])


def refit(*payloads: Any, tp: int = 2, tokens: list[int] | None = None, error: str = "", ragged: bool = False) -> Tape:
    tape = Tape(tp=tp)
    truth(tape)
    if ragged:
        tape.fact("ragged", engine="")
    with tape.refit(seed=1, error=error):
        exported(tape, ("a", "e0", 0), ("b", "e0", 1))
        tape.bucket(payloads)
    if tokens is not None:
        tape.gen(tokens, prompt=PROMPT, origin="traffic")
    return tape


@holds("RANK-1", "RANK-2")
def a_payload_per_rank() -> Tape:
    return refit("a", "b", tokens=B)


@leaves_open("RANK-1", "RANK-2", "RANK-3", "RANK-4")
def one_rank_only() -> Tape:
    return refit("a", tp=1, tokens=B)


@breaks("RANK-1", "payload[0] was made for e0 tp rank 1")
def transposed_but_harmless() -> Tape:
    return refit("b", "a", tokens=B)


@breaks("RANK-1", "came from rank 0, not from GPU 1")
def from_another_gpu() -> Tape:
    tape = Tape(tp=2)
    tape.fact("engine", tp=2, gpus=[1, 0])
    with tape.refit(seed=1):
        exported(tape, ("a", "e0", 0), ("b", "e0", 1))
        tape.bucket(("a", "b"))
    return tape


@breaks("RANK-1", "of no set")
def wrong_content_that_nobody_recorded() -> Tape:
    return refit("x", "y", tokens=[9, 9])


@leaves_open("RANK-1")
def wrong_content_of_the_same_bytes_for_all() -> Tape:
    return refit("x", "x", tokens=[9, 9])


@holds("RANK-1")
def wrong_content_by_the_right_ranks() -> Tape:
    return refit("a", "b", tokens=[9, 9])


@breaks("RANK-1", "1 payload for 2 ranks; the engine died of it")
def one_payload_for_two_ranks() -> Tape:
    tape = Tape(tp=2)
    with tape.refit(error="dropped"):
        tape.bucket(("x",), None, error="dropped")
    return tape


@breaks("RANK-1", "only some of its payloads carry up")
def a_rank_is_one_bucket_behind() -> Tape:
    tape = Tape(tp=2)
    with tape.refit(seed=1):
        tape.trainer("export", rank=0, export=1, sha256="a", names=["norm", "up"], consumers=[["e0", 0]])
        tape.trainer("export", rank=1, export=2, sha256="b", names=["norm"], consumers=[["e0", 1]])
        tape.bucket(("a", "b"))
    return tape


@breaks("RANK-2", "are the same export")
def one_for_all() -> Tape:
    return refit("a", "a", tokens=B)


@holds("RANK-2")
def two_exports_of_the_same_bytes() -> Tape:
    tape = Tape(tp=2)
    with tape.refit(seed=1):
        exported(tape, ("a", "e0", 0), ("a", "e0", 1))
        tape.bucket(("a", "a"))
    return tape


@leaves_open("RANK-2")
def the_same_bytes_that_nobody_recorded() -> Tape:
    return refit("x", "x", tokens=B)


def fleet(tokens: list[int], second: tuple[str, ...] = ("y0",)) -> Tape:
    tape = Tape(tp=2)
    tape.fact("engine", engine="e1", tp=1)
    truth(tape)
    truth(tape, "e1")
    with tape.refit(seed=1):
        tape.bucket(("x0", "x1"))
        tape.bucket(second, engine="e1")
    tape.gen(B, prompt=PROMPT, origin="traffic")
    tape.gen(tokens, prompt=PROMPT, origin="traffic", engine="e1")
    return tape


@holds("RANK-3")
def unequal_engines() -> Tape:
    return fleet(B)


@breaks("RANK-3", "2 payloads")
def the_same_list_for_all() -> Tape:
    return fleet(B, ("y0", "y1"))


@breaks("RANK-3", "[1, 1]")
def the_second_engine_got_others() -> Tape:
    return fleet(A)


@holds("RANK-4")
def ragged_and_whole() -> Tape:
    return refit("x", "y", tokens=B, ragged=True)


@breaks("RANK-4", "rank 1 gave nothing")
def ragged_fails() -> Tape:
    return refit("x", "y", ragged=True, error="rank 1 gave nothing")


@breaks("RANK-4", "None")
def ragged_with_a_hole() -> Tape:
    return refit("x", None, ragged=True, tokens=B)


def push(
    kind: str,
    status: int | None,
    tokens: list[int] | None,
    seeds: tuple[int, ...] = (),
    tp: int = 2,
    before: list[int] | None = None,
    message: str = "Success",
    **note: Any,
) -> Tape:
    tape = Tape(tp=tp)
    truth(tape)
    if before is not None:
        tape.gen(before, prompt=PROMPT)
    tape.fact("push", kind=kind, seeds=list(seeds), **note)
    body = {"success": status == 200, "message": message}
    tape.call("update_weights_from_tensor", {}, status, body, error="dropped" if status is None else "")
    if tokens is not None:
        tape.gen(tokens, prompt=PROMPT)
    return tape


@holds("RANK-51")
def short_list_kills() -> Tape:
    return push("short-list", None, None)


@breaks("RANK-51", "200")
def short_list_is_taken() -> Tape:
    return push("short-list", 200, None)


@leaves_open("RANK-51")
def short_list_at_tp_1() -> Tape:
    return push("short-list", 200, None, tp=1)


@holds("RANK-52")
def long_list_is_cut() -> Tape:
    return push("long-list", 200, B, (1,))


@breaks("RANK-52", "dropped")
def long_list_kills() -> Tape:
    return push("long-list", None, None)


@breaks("RANK-52", "of seeds [0]")
def long_list_takes_the_last() -> Tape:
    return push("long-list", 200, A, (1,))


@holds("RANK-53")
def torn_ranks_serve_neither() -> Tape:
    return push("torn-ranks", 200, [9, 9])


@breaks("RANK-53", "of seeds [1]")
def torn_ranks_are_healed() -> Tape:
    return push("torn-ranks", 200, B)


@holds("RANK-54")
def swapped_is_harmless() -> Tape:
    return push("swapped", 200, B, (1,))


@breaks("RANK-54", "of seeds []")
def swapped_is_wrong() -> Tape:
    return push("swapped", 200, [9, 9], (1,))
