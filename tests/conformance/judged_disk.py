from __future__ import annotations

from typing import Any

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.tape import Tape

A, B, PROMPT = [1, 1], [2, 2], (5, 6)
UPDATE = "update_weights_from_disk"


def told(tape: Tape, path: str = "/d/1", status: int | None = 200, message: str = "ok", **rest: Any) -> int:
    body = {"success": status == 200, "message": message, "num_paused_requests": 0}
    return tape.sut(UPDATE, {"model_path": path}, status, body, **rest)


def refit(*, removed: str = "after", published: str = "before", tokens: list[int] = B, session: bool = False) -> Tape:
    tape = Tape()
    tape.expect(0, A, PROMPT)
    tape.expect(1, B, PROMPT)
    with tape.refit(seed=1):
        if published == "before":
            tape.trainer("folder_published", path="/d/1", files=2)
        if session:
            tape.sut("begin_weight_update", {})
        call = tape.start(UPDATE, {"model_path": "/d/1"}, origin="sut")
        if published == "after":
            tape.trainer("folder_published", path="/d/1", files=2)
        if removed == "during":
            tape.trainer("folder_removed", path="/d/1")
        tape.finish(call)
        if removed == "after":
            tape.trainer("folder_removed", path="/d/1")
    tape.gen(tokens, prompt=PROMPT, origin="traffic")
    return tape


@holds("DISK-1", "DISK-2", "DISK-3", "DISK-4")
def a_folder() -> Tape:
    return refit()


@leaves_open("DISK-1", "DISK-2", "DISK-3", "DISK-4")
def no_folder() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket()
    return tape


@breaks("DISK-1", "had an end")
def removed_while_it_is_read() -> Tape:
    return refit(removed="during")


@breaks("DISK-1", "it was not there")
def not_there() -> Tape:
    tape = Tape()
    with tape.refit(error="no"):
        told(tape, status=400, message="Failed to get weights iterator: Repo id must ...")
    return tape


def unanswered(*, again: bool) -> Tape:
    tape = Tape()
    with tape.refit(1, error="timeout"):
        told(tape, status=None, error="timeout")
    with tape.refit(2):
        if again:
            told(tape, "/d/2")
        tape.trainer("folder_removed", path="/d/1")
    return tape


@holds("DISK-1")
def kept_until_a_later_yes() -> Tape:
    return unanswered(again=True)


@breaks("DISK-1", "had an end")
def removed_without_an_answer() -> Tape:
    return unanswered(again=False)


@holds("DISK-1")
def a_dead_engine_reads_no_more() -> Tape:
    tape = Tape()
    with tape.refit(1, error="gone"):
        told(tape, status=None, error="dropped")
        tape.trainer("folder_removed", path="/d/1")
    return tape


@breaks("DISK-2", "before it was published")
def published_too_late() -> Tape:
    return refit(published="after")


@breaks("DISK-2", "of seeds [0]")
def half_a_folder() -> Tape:
    return refit(tokens=A)


@breaks("DISK-3", "refit 2 uses the path of refit 1")
def one_path() -> Tape:
    tape = Tape()
    for number in (1, 2):
        with tape.refit(number):
            told(tape)
    return tape


@breaks("DISK-4", "begin_weight_update")
def in_a_session() -> Tape:
    return refit(session=True)


def pushed(kind: str, status: int | None, message: str = "ok", path: str = "/p", **rest: Any) -> Tape:
    tape = Tape()
    tape.expect(0, A, PROMPT)
    tape.expect(1, B, PROMPT)
    if rest.get("before"):
        tape.gen(rest["before"], prompt=PROMPT, origin="traffic")
    tape.fact("push", kind=kind, seeds=list(rest.get("seeds", ())))
    request = {"model_path": path}
    if status is None:
        tape.call(UPDATE, request, None, error="dropped")
    else:
        tape.message(UPDATE, status, message, request)
    if "shown" in rest:
        tape.call("model_info", None, 200, {"model_path": rest["shown"]}, method="GET", bare=True)
    if "tokens" in rest:
        tape.gen(rest["tokens"], prompt=PROMPT, origin="traffic")
    return tape


@holds("DISK-51")
def loaded() -> Tape:
    return pushed("disk-whole", 200, tokens=B, seeds=(1,), shown="/p")


@breaks("DISK-51", "model_path '/old'")
def the_path_stays() -> Tape:
    return pushed("disk-whole", 200, tokens=B, seeds=(1,), shown="/old")


@holds("DISK-52")
def refused() -> Tape:
    return pushed("disk-missing", 400, "Failed to get weights iterator: x", before=A, tokens=A, shown="/old")


@breaks("DISK-52", "model_path '/p'")
def refused_and_shown() -> Tape:
    return pushed("disk-missing", 400, "Failed to get weights iterator: x", before=A, tokens=A, shown="/p")


@holds("DISK-53")
def fails_and_dies() -> Tape:
    return pushed("disk-fails", None)


@breaks("DISK-53", "400")
def fails_and_lives() -> Tape:
    return pushed("disk-fails", 400, "Rolling back to original weights.")


@holds("DISK-54")
def a_part() -> Tape:
    return pushed("disk-part", 200, tokens=[9, 9])


@breaks("DISK-54", "400")
def a_part_is_refused() -> Tape:
    return pushed("disk-part", 400, "no")


def inside(status: int) -> Tape:
    tape = pushed("disk-inside", 200)
    tape.fact("asked", kind="end-after-disk")
    tape.call("end_weight_update", {}, status)
    return tape


@holds("DISK-55")
def still_open() -> Tape:
    return inside(200)


@breaks("DISK-55", "400")
def closed() -> Tape:
    return inside(400)


@holds("DISK-56")
def empty() -> Tape:
    return pushed("disk-empty", 400, "Failed to get weights iterator: Cannot find any model weights with `/p`.")


@breaks("DISK-56", "200")
def empty_is_fine() -> Tape:
    return pushed("disk-empty", 200)
