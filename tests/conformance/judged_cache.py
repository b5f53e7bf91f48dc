from __future__ import annotations

from conformance.rules.cache import FLUSHED, NOT_FLUSHED, NOT_IDLE, REFUSED
from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_pause import pause, resume
from tests.conformance.tape import Tape

WARM = (7, 8, 9)


def flush(tape: Tape, ok: bool = True, **rest: object) -> None:
    origin = str(rest.pop("origin", "probe"))
    tape.call(
        "flush_cache",
        rest.pop("request", None),
        200 if ok else 400,
        FLUSHED if ok else f"{REFUSED}\n",
        origin=origin,
        **rest,
    )  # type: ignore[arg-type]


def refused_flushes(n: int, wait: float, *, then_ok: bool, error: str = "", bucket: bool = False) -> Tape:
    tape = Tape()
    with tape.refit(error=error):
        for _ in range(n):
            flush(tape, False, origin="sut", dt=wait)
        if then_ok:
            flush(tape, origin="sut", dt=wait)
        if bucket:
            tape.bucket()
    return tape


@holds("CACHE-1")
def waits_between() -> Tape:
    return refused_flushes(3, 0.5, then_ok=True, bucket=True)


@holds("CACHE-1")
def never_idle_keeps_the_reason() -> Tape:
    return refused_flushes(3, 0.5, then_ok=False, error=f"flush failed on e0: HTTP 400: {REFUSED}")


@breaks("CACHE-1", "given up 0.010 s after")
def gives_up_at_once() -> Tape:
    return refused_flushes(1, 0.5, then_ok=False, error=f"flush failed on e0: HTTP 400: {REFUSED}")


@breaks("CACHE-1", "a bucket")
def flushes_after_the_buckets() -> Tape:
    tape = Tape()
    with tape.refit(error=REFUSED):
        tape.bucket()
        flush(tape, False, origin="sut")
    return tape


@breaks("CACHE-1", "between two polls")
def hammers() -> Tape:
    return refused_flushes(3, 0.002, then_ok=True)


@holds("CACHE-1")
def waits_a_twentieth_of_a_second() -> Tape:
    return refused_flushes(5, 0.05, then_ok=True)  # floats: one gap is a little shorter


@breaks("CACHE-1", "polls in")
def polls_too_often() -> Tape:
    return refused_flushes(30, 0.1, then_ok=True)


@breaks("CACHE-1", "no reason")
def loses_the_reason() -> Tape:
    return refused_flushes(4, 0.5, then_ok=False, error="no reason")


@breaks("CACHE-1", "a bucket")
def goes_on_all_the_same() -> Tape:
    return refused_flushes(1, 0.5, then_ok=False, bucket=True)


@leaves_open("CACHE-1", "CACHE-3", "CACHE-4")
def quiet_refit() -> Tape:
    tape = Tape()
    with tape.refit():
        flush(tape, origin="sut")
        tape.bucket()
    return tape


def busy_update(version: str, mode: str, flushing: bool) -> Tape:
    tape = Tape(version)
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    with tape.refit():
        pause(tape, mode)
        tape.bucket(request={"flush_cache": flushing})
        resume(tape)
    tape.finish(running, body=tape.answer([1]))
    return tape


@holds("CACHE-3")
def no_flush_on_a_busy_engine() -> Tape:
    return busy_update("0.5.23", "in_place", False)


@holds("CACHE-3")
def the_queue_does_not_count_since_21() -> Tape:
    return busy_update("0.5.23", "retract", True)


@holds("CACHE-3", "VER-1")
def aborted_before_the_update() -> Tape:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    with tape.refit():
        tape.sut("pause_generation", {"mode": "abort"})
        tape.finish(running, body=tape.answer([1], finish="abort"))
        tape.bucket(request={"flush_cache": True, "weight_version": "v1"})
    return tape


@leaves_open("CACHE-3", "VER-1")
def over_before_the_refit() -> Tape:
    tape = Tape()
    tape.gen([1], origin="traffic")
    with tape.refit():
        tape.bucket(request={"flush_cache": True, "weight_version": "v1"})
    late = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    tape.finish(late, body=tape.answer([1]))
    return tape


@breaks("CACHE-3", "in_place")
def flush_on_frozen_requests() -> Tape:
    return busy_update("0.5.23", "in_place", True)


@breaks("CACHE-3", "retract")
def flush_on_a_queue_before_21() -> Tape:
    return busy_update("0.5.20", "retract", True)


@breaks("CACHE-3", "flush_cache true")
def flush_on_released_kv() -> Tape:
    tape = Tape()
    tape.sut("release_memory_occupation", {"tags": ["kv_cache"]}, body=None)
    tape.bucket(request={"flush_cache": True})
    return tape


def served_again(tokens: list[int], cached: int = 0, extra_key: str = "") -> Tape:
    tape = Tape()
    tape.expect(0, [1, 1], WARM)
    tape.expect(1, [2, 2], WARM)
    tape.gen([1, 1], prompt=WARM, origin="traffic")
    with tape.refit(seed=1):
        tape.bucket()
    tape.gen(tokens, prompt=WARM, origin="traffic", cached=cached, extra_key=extra_key)
    return tape


@holds("CACHE-4")
def served_fresh() -> Tape:
    return served_again([2, 2])


@leaves_open("CACHE-4")
def another_namespace() -> Tape:
    return served_again([2, 2], extra_key="v1")


@holds("CACHE-4")
def cached_since_the_refit() -> Tape:
    return served_again([2, 2], cached=2)


@breaks("CACHE-4", "cached_tokens 2")
def served_from_the_cache() -> Tape:
    return served_again([9, 9], cached=2)


@breaks("CACHE-4", "[9, 9]")
def served_stale_without_saying_so() -> Tape:
    return served_again([9, 9])


def flushed_then(cached: int) -> Tape:
    tape = Tape()
    tape.gen([1], prompt=WARM)
    flush(tape)
    tape.gen([1], prompt=WARM, cached=cached)
    return tape


@holds("CACHE-5")
def flush_drops() -> Tape:
    return flushed_then(0)


@breaks("CACHE-5", "cached 2")
def flush_only_says_so() -> Tape:
    return flushed_then(2)


@leaves_open("CACHE-5")
def two_for_one_prompt_after_a_flush() -> Tape:
    """Who came second may be served first, and has then filled the cache."""
    tape = Tape()
    tape.gen([1, 1])
    flush(tape)
    first = tape.start("generate", {"input_ids": [1, 2, 3]})
    tape.gen([1, 1])
    tape.finish(first, 200, tape.answer([1, 1], cached=2))
    return tape


@holds("CACHE-51")
def idle_flush() -> Tape:
    tape = Tape()
    flush(tape)
    flush(tape, method="GET")
    return tape


@breaks("CACHE-51", REFUSED)
def idle_flush_refused() -> Tape:
    tape = Tape()
    flush(tape, False)
    return tape


@leaves_open("CACHE-51")
def a_flush_right_after_a_response() -> Tape:
    tape = Tape()
    tape.gen([1])
    flush(tape, False)
    return tape


def busy_flush(ok: bool, mode: str = "", version: str = "0.5.23", **request: object) -> Tape:
    tape = Tape(version)
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    if mode:
        pause(tape, mode, "probe")
    if mode == "abort":
        tape.finish(running, body=tape.answer([1], finish="abort"))
    text = NOT_IDLE if "?timeout" in request else f"{REFUSED}\n"
    tape.call("flush_cache", request or None, 200 if ok else 400, FLUSHED if ok else text)
    if mode:
        resume(tape, origin="probe")
    if mode != "abort":
        tape.finish(running, body=tape.answer([1]))
    return tape


CASES = {
    "CACHE-52": ("", False, "0.5.23"),
    "CACHE-53": ("retract", True, "0.5.23"),
    "CACHE-54": ("retract", False, "0.5.20"),
    "CACHE-55": ("in_place", False, "0.5.23"),
    "CACHE-56": ("abort", True, "0.5.23"),
}
for _rule, (_mode, _ok, _version) in CASES.items():
    holds(_rule)(lambda mode=_mode, ok=_ok, version=_version: busy_flush(ok, mode, version))
    breaks(_rule)(lambda mode=_mode, ok=_ok, version=_version: busy_flush(not ok, mode, version))


def stale(tokens: list[int], cached: int, **request: object) -> Tape:
    tape = Tape()
    tape.expect(0, [1, 1], WARM)
    tape.expect(1, [2, 2], WARM)
    tape.gen([1, 1], prompt=WARM)
    tape.call("update_weights_from_tensor", {"serialized_named_tensors": ["p"], **request})
    tape.gen(tokens, prompt=WARM, cached=cached)
    return tape


@holds("CACHE-57")
def stale_kv_is_visible() -> Tape:
    return stale([9, 9], 2, flush_cache=False)


@breaks("CACHE-57", "cached 0")
def unasked_flush() -> Tape:
    return stale([2, 2], 0, flush_cache=False)


@breaks("CACHE-57", "[2, 2]")
def stale_kv_without_a_trace() -> Tape:
    return stale([2, 2], 2, flush_cache=False)


@holds("CACHE-58")
def update_flushes_by_default() -> Tape:
    return stale([2, 2], 0)


@breaks("CACHE-58", "cached_tokens 2")
def update_does_not_flush() -> Tape:
    return stale([9, 9], 2)


@leaves_open("CACHE-58")
def two_for_one_prompt_after_an_update() -> Tape:
    tape = Tape()
    tape.gen([1, 1])
    tape.bucket(request={"flush_cache": True})
    first = tape.start("generate", {"input_ids": [1, 2, 3]})
    second = tape.start("generate", {"input_ids": [1, 2, 3]})
    tape.finish(second, 200, tape.answer([2, 2]))
    tape.finish(first, 200, tape.answer([2, 2], cached=2))
    return tape


def refused_by_update(status: int | None, message: str = "") -> Tape:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    pause(tape, "in_place", "probe")
    body = {"success": status == 200, "message": message}
    tape.call("update_weights_from_tensor", {}, status, body, error="dropped" if status is None else "")
    if status is not None:
        resume(tape, origin="probe")
    tape.finish(running, body=tape.answer([1]))
    return tape


@holds("CACHE-59")
def flush_refused_is_400() -> Tape:
    return refused_by_update(400, NOT_FLUSHED)


@breaks("CACHE-59", "Success")
def flush_refused_is_hidden() -> Tape:
    return refused_by_update(200, "Success")


@holds("CACHE-60")
def flush_refused_kills() -> Tape:
    return refused_by_update(None)


@breaks("CACHE-60", NOT_FLUSHED)
def flush_refused_does_not_kill() -> Tape:
    return refused_by_update(400, NOT_FLUSHED)


@holds("CACHE-61")
def timed_flush() -> Tape:
    return busy_flush(False, **{"?timeout": "1"})


@breaks("CACHE-61", FLUSHED)
def timed_flush_granted() -> Tape:
    return busy_flush(True, **{"?timeout": "1"})


@holds("CACHE-62")
def negative_timeout() -> Tape:
    tape = Tape()
    flush(tape, False, request={"?timeout": "-1"})
    return tape


@breaks("CACHE-62")
def negative_timeout_taken() -> Tape:
    tape = Tape()
    flush(tape, request={"?timeout": "-1"})
    return tape
