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


PROOFS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "token": ("generate", {"input_ids": [0]}, {"output_ids": [7], "meta_info": {"completion_tokens": 1}}),
    "nothing": ("generate", {"input_ids": [0]}, {"output_ids": [], "meta_info": {"completion_tokens": 0}}),
    "flush": ("flush_cache", {}, {"success": True}),
    "begin": ("begin_weight_update", {}, {"success": True}),
    "ipc": ("update_weights_from_ipc", {"zmq_handles": {}}, {"success": True}),
    "kv": ("release_memory_occupation", {"tags": ["kv_cache"]}, {}),
    "weights": ("release_memory_occupation", {"tags": ["weights"]}, {}),
    "checksum": ("weights_checker", {"action": "checksum"}, {"success": True}),
    "compare": ("weights_checker", {"action": "compare"}, {"success": True}),
}


def at_tp_2(
    *proofs: str,
    status: int | None = 200,
    fault: str = "",
    other: str = "e0",
    version: str = "0.5.23",
    between: str = "",
) -> Tape:
    """Told, answered by rank 0, asked again for what shows that all ranks have read, removed."""
    tape = Tape(version, tp=2)
    with tape.refit(1, **({} if status == 200 else {"error": "no"})):
        told(tape, status=status, fault=fault, error="timeout" if status is None else "")
        if between == "again":
            told(tape, "/d/2")
        elif between == "restart":
            tape.call("model_info", None, 200, {}, method="GET", bare=True, incarnation=1)
        elif between == "dies":
            tape.sut("flush_cache", {}, None, error="dropped: gone")
        for proof in proofs:
            op, request, body = PROOFS[proof]
            tape.call(op, request, 200, body, origin="traffic", engine=other)
        tape.trainer("folder_removed", path="/d/1")
    return tape


@holds("DISK-1")
def a_token_shows_that_all_have_read() -> Tape:
    return at_tp_2("token")


@breaks("DISK-1", "the word of rank 0")
def removed_at_the_answer() -> Tape:
    return at_tp_2()


@breaks("DISK-1", "the word of rank 0")
def a_flush_shows_nothing() -> Tape:
    return at_tp_2("flush", "kv", "compare", "nothing")


@breaks("DISK-1", "the word of rank 0")
def another_engine_shows_nothing() -> Tape:
    return at_tp_2("token", other="e1")


@holds("DISK-1")
def a_barrier_shows_it() -> Tape:
    return at_tp_2("begin")


@holds("DISK-1")
def an_update_over_ipc_shows_it() -> Tape:
    return at_tp_2("ipc")


@holds("DISK-1")
def released_weights_show_it() -> Tape:
    return at_tp_2("weights")


@holds("DISK-1")
def a_checksum_shows_it() -> Tape:
    return at_tp_2("checksum")


@breaks("DISK-1", "the word of rank 0")
def a_checksum_of_old_shows_nothing() -> Tape:
    return at_tp_2("checksum", version="0.5.12.post1")


@breaks("DISK-1", "the word of rank 0")
def refused_by_rank_0() -> Tape:
    return at_tp_2(status=400)


@holds("DISK-1")
def never_delivered() -> Tape:
    return at_tp_2(status=500, fault="e0:update_weights_from_disk#1:before:status500")


@breaks("DISK-1", "had an end")
def a_token_after_no_answer() -> Tape:
    return at_tp_2("token", status=None)


@holds("DISK-1")
def a_token_after_a_later_yes() -> Tape:
    return at_tp_2("token", status=None, between="again")


@breaks("DISK-1", "the word of rank 0")
def a_later_yes_alone() -> Tape:
    return at_tp_2(status=None, between="again")


@holds("DISK-1")
def a_new_incarnation_reads_nothing_old() -> Tape:
    return at_tp_2(between="restart")


@holds("DISK-1")
def one_that_died_later_reads_no_more() -> Tape:
    return at_tp_2(between="dies")


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


@holds("DISK-57")
def gone_early_and_dead() -> Tape:
    tape = pushed("disk-early", 200)
    tape.call("generate", {"input_ids": list(PROMPT)}, None, error="dropped: gone", origin="traffic")
    return tape


@holds("DISK-57")
def gone_early_and_torn() -> Tape:
    return pushed("disk-early", 200, tokens=[9, 9])


@breaks("DISK-57", "of seeds [1]")
def gone_early_and_whole() -> Tape:
    return pushed("disk-early", 200, tokens=B)


@leaves_open("DISK-57")
def gone_early_and_never_asked() -> Tape:
    return pushed("disk-early", 200)
