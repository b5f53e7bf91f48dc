"""Hand-made histories of the rules about memory that is really gone."""

from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_mem import RELEASE, RESUME, calls
from tests.conformance.judged_name import kills
from tests.conformance.judged_pause import pause, resume
from tests.conformance.judged_rank import PROMPT, A, B, truth
from tests.conformance.tape import Tape

NEITHER = [9, 9]
WEIGHTS = {"tags": ["weights"]}
POOL = {"tags": ["kv_cache"]}


def back(tokens: list[int] | None, *, cached: int = 0, tags: dict[str, list[str]] = WEIGHTS) -> Tape:
    """Weights of seed 0 are released, resumed and asked."""
    tape = Tape()
    truth(tape)
    tape.fact("holds", seed=0)
    tape.call(RELEASE, tags, body=None)
    tape.call(RESUME, tags, body=None)
    if tokens is not None:
        tape.gen(tokens, prompt=PROMPT, cached=cached)
    return tape


def back_and_sent(tokens: list[int]) -> Tape:
    tape = back(None)
    tape.call("update_weights_from_tensor")
    tape.gen(tokens, prompt=PROMPT)
    return tape


holds("MEM-60")(lambda: back(NEITHER))
breaks("MEM-60", "of seeds [0]")(lambda: back(A))
leaves_open("MEM-60")(lambda: back(A, cached=2))
leaves_open("MEM-60")(lambda: back_and_sent(B))
leaves_open("MEM-60", "MEM-61")(lambda: back(A, tags=POOL))

holds("MEM-61")(lambda: back(A))
breaks("MEM-61", "of seeds []")(lambda: back(NEITHER))
breaks("MEM-61", "of seeds [1]")(lambda: back(B))
leaves_open("MEM-61")(lambda: back(None))


def halves(first: list[int], whole: list[int], status: int = 200) -> Tape:
    tape = back(None)
    for kind, tokens, seeds in (("resumed-half", first, []), ("resumed-whole", whole, [1])):
        tape.fact("push", kind=kind, seeds=seeds)
        tape.message("update_weights_from_tensor", status, "Success")
        tape.gen(tokens, prompt=PROMPT)
    return tape


holds("MEM-62")(lambda: halves(NEITHER, B))
breaks("MEM-62", "of seeds [0]")(lambda: halves(A, B))
breaks("MEM-62", "of seeds []")(lambda: halves(NEITHER, NEITHER))
breaks("MEM-62", "400")(lambda: halves(NEITHER, B, status=400))

UPDATE = ("update_weights_from_tensor", None)
holds("MEM-63")(lambda: calls((RELEASE, ["weights"]), UPDATE, last=None))
breaks("MEM-63", "200")(lambda: calls((RELEASE, ["weights"]), UPDATE))
leaves_open("MEM-63")(lambda: calls((RELEASE, ["kv_cache"]), UPDATE))

holds("MEM-64")(lambda: calls((RELEASE, ["kv_cache"]), (RELEASE, ["kv_cache"]), last=None))
breaks("MEM-64", "200")(lambda: calls((RELEASE, ["kv_cache"]), (RELEASE, ["kv_cache"])))
leaves_open("MEM-64")(lambda: calls((RELEASE, ["kv_cache"]), (RELEASE, ["weights"])))


def served(tags: list[str], *, dies: bool, paused: bool = False) -> Tape:
    tape = Tape()
    if paused:
        pause(tape, "abort", "probe")
    tape.call(RELEASE, {"tags": tags}, body=None)
    tape.call("generate", {"input_ids": [1]}, None if dies else 200, tape.answer([1]), error="dropped" if dies else "")
    return tape


holds("MEM-65")(lambda: served(["kv_cache"], dies=True))
holds("MEM-65")(lambda: served(["weights"], dies=True))
breaks("MEM-65", "200")(lambda: served(["kv_cache"], dies=False))
leaves_open("MEM-65")(lambda: served(["cuda_graph"], dies=False))
leaves_open("MEM-65")(lambda: served(["kv_cache"], dies=False, paused=True))


def waits(tokens: list[int], *, status: int = 200, cached: int = 0) -> Tape:
    tape = Tape()
    truth(tape)
    pause(tape, "abort", "probe")
    tape.call(RELEASE, POOL, body=None)
    call = tape.start("generate", {"input_ids": list(PROMPT)}, origin="traffic")
    tape.call(RESUME, POOL, body=None)
    resume(tape, "probe")
    tape.finish(call, status, tape.answer(tokens, cached=cached) if status == 200 else {"message": "released"})
    return tape


holds("MEM-66")(lambda: waits(A))
breaks("MEM-66", "503")(lambda: waits(A, status=503))
breaks("MEM-66", "cached_tokens 2")(lambda: waits(A, cached=2))
breaks("MEM-66", "[9, 9]")(lambda: waits(NEITHER))
leaves_open("MEM-66")(lambda: served(["kv_cache"], dies=False))

kills("gone-producer", "IPC-51")
