from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_pause import pause
from tests.conformance.tape import Tape

RELEASE, RESUME = "release_memory_occupation", "resume_memory_occupation"


def calls(
    *ops: tuple[str, list[str] | None],
    origin: str = "probe",
    last: int | None = 200,
    version: str = "0.5.23",
    last_body: object = None,
    running: str = "",
) -> Tape:
    tape = Tape(version)
    busy = tape.start("generate", {"input_ids": [1]}, origin="traffic") if running else 0
    if running not in ("", "running"):
        pause(tape, running, "probe")
    for number, (op, tags) in enumerate(ops):
        status = last if number == len(ops) - 1 else 200
        tape.call(
            op,
            {"tags": tags} if tags else {},
            status,
            last_body if status == last else None,
            error="dropped" if status is None else "",
            origin=origin,
        )
    if busy:
        tape.finish(busy, body=tape.answer([1]))
    return tape


@holds("MEM-1")
def same_set() -> Tape:
    return calls((RELEASE, ["weights", "kv_cache"]), (RESUME, ["weights"]), (RESUME, ["kv_cache"]), origin="sut")


@breaks("MEM-1", "cuda_graph resumed")
def another_set() -> Tape:
    return calls((RELEASE, ["weights", "kv_cache"]), (RESUME, None), origin="sut")


@leaves_open("MEM-1", "MEM-2")
def never_resumed() -> Tape:
    return calls((RELEASE, None), origin="sut")


def written(*, resumed: bool) -> Tape:
    tape = calls((RELEASE, None), *([(RESUME, ["weights"])] if resumed else []), origin="sut")
    tape.sut("begin_weight_update")
    return tape


@holds("MEM-2")
def written_after_resume() -> Tape:
    return written(resumed=True)


@breaks("MEM-2", "begin_weight_update while weights are released")
def written_while_released() -> Tape:
    return written(resumed=False)


def offloaded(live: int) -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket()
        tape.trainer("OFFLOADED", live_exports=live)
    return tape


@holds("MEM-3")
def nothing_alive() -> Tape:
    return offloaded(0)


@breaks("MEM-3", "2")
def exports_alive() -> Tape:
    return offloaded(2)


@leaves_open("MEM-3")
def nothing_sent() -> Tape:
    tape = Tape()
    tape.trainer("OFFLOADED", live_exports=0)
    return tape


def failed_on_released(*, back: bool, lost: bool = False) -> Tape:
    tape = calls((RELEASE, ["weights", "kv_cache"]), origin="sut")
    with tape.refit(error="bucket failed"):
        tape.sut(RESUME, {"tags": ["weights"]}, body=None)
        if back:
            tape.sut(RESUME, {"tags": ["kv_cache"]}, body=None)
        if lost:
            tape.trainer("ENGINE_LOST", engine="e0", incarnation=0, reason="unknown")
    return tape


@holds("MEM-71")
def back_after_a_failure() -> Tape:
    return failed_on_released(back=True)


@holds("MEM-71")
def given_up_after_a_failure() -> Tape:
    return failed_on_released(back=False, lost=True)


@breaks("MEM-71", "kv_cache still released")
def kv_stays_released() -> Tape:
    return failed_on_released(back=False)


@leaves_open("MEM-71")
def nothing_was_released() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket()
    return tape


@holds("MEM-51")
def released() -> Tape:
    return calls((RELEASE, ["bogus"]))


@breaks("MEM-51", "400")
def release_refused() -> Tape:
    return calls((RELEASE, ["bogus"]), last=400)


@holds("MEM-52")
def resumed() -> Tape:
    return calls((RELEASE, None), (RESUME, ["weights"]))


@breaks("MEM-52", "dropped")
def resume_kills() -> Tape:
    return calls((RELEASE, None), (RESUME, ["weights"]), last=None)


@holds("MEM-53")
def resume_of_nothing_kills() -> Tape:
    return calls((RELEASE, ["kv_cache"]), (RESUME, ["weights"]), last=None)


@breaks("MEM-53", "200")
def resume_of_nothing_is_taken() -> Tape:
    return calls((RESUME, ["weights"]))


@holds("MEM-54")
def release_while_running_kills() -> Tape:
    tape = Tape()
    busy = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    tape.call(RELEASE, {}, None, error="dropped")
    tape.finish(busy, None, error="dropped")
    return tape


@breaks("MEM-54", "200")
def release_while_running_is_taken() -> Tape:
    return calls((RELEASE, None), running="running")


@holds("MEM-55")
def released_twice() -> Tape:
    return calls((RELEASE, None), (RELEASE, None))


@breaks("MEM-55", "dropped")
def second_release_kills() -> Tape:
    return calls((RELEASE, None), (RELEASE, None), last=None)


def begun(status: int) -> Tape:
    body = {"success": status == 200, "message": "Success" if status == 200 else "released"}
    return calls((RELEASE, None), ("begin_weight_update", None), last=status, last_body=body)


@holds("MEM-56")
def begun_while_released() -> Tape:
    tape = calls((RELEASE, ["weights"]))
    tape.call("begin_weight_update")
    return tape


@breaks("MEM-56", "released")
def begin_refused_while_released() -> Tape:
    tape = calls((RELEASE, ["weights"]))
    tape.message("begin_weight_update", 400, "released")
    return tape


@holds("MEM-57")
@breaks("MEM-58", "200")
def released_with_a_queue() -> Tape:
    return calls((RELEASE, None), running="retract")


@holds("MEM-58")
@breaks("MEM-57", "dropped")
def release_with_a_queue_kills() -> Tape:
    tape = Tape()
    busy = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    pause(tape, "retract", "probe")
    tape.call(RELEASE, {}, None, error="dropped")
    tape.finish(busy, None, error="dropped")
    return tape


def cache_after_release(cached: int) -> Tape:
    tape = Tape()
    tape.gen([1])
    tape.call(RELEASE, {}, body=None)
    tape.call(RESUME, {}, body=None)
    tape.gen([1], cached=cached)
    return tape


@holds("MEM-59")
def release_drops_the_cache() -> Tape:
    return cache_after_release(0)


@breaks("MEM-59", "cached 2")
def release_keeps_the_cache() -> Tape:
    return cache_after_release(2)
