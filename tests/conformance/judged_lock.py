from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_pause import pause, resume
from tests.conformance.tape import Tape


def with_reader(*, first: str, probe: str = "") -> Tape:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    update = tape.start("update_weights_from_tensor")
    if probe == "answered":
        tape.call("flush_cache", status=400, body="Flush cache failed.\n")
    late = tape.start("flush_cache") if probe == "late" else 0
    for item in (running, update) if first == "reader" else (update, running):
        tape.finish(item, body=tape.answer([1]) if item == running else ...)
    if late:
        tape.finish(late, 400, "Flush cache failed.\n")
    return tape


@holds("LOCK-51")
@leaves_open("LOCK-54", "LOCK-53")
def update_waits() -> Tape:
    return with_reader(first="reader")


@breaks("LOCK-51")
def update_does_not_wait() -> Tape:
    return with_reader(first="writer")


@holds("LOCK-54")
def flush_takes_no_lock() -> Tape:
    return with_reader(first="reader", probe="answered")


@breaks("LOCK-54", "400")
def flush_waits_too() -> Tape:
    return with_reader(first="reader", probe="late")


def while_paused(*, passes: bool) -> Tape:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    pause(tape, "retract", "probe")
    if passes:
        tape.call("update_weights_from_tensor")
    else:
        tape.call("update_weights_from_tensor", status=None, error="timeout")
    resume(tape, origin="probe")
    tape.finish(running, body=tape.answer([1]))
    return tape


@holds("LOCK-52")
def update_passes_a_pause() -> Tape:
    return while_paused(passes=True)


@breaks("LOCK-52", "none")
def update_blocked_by_held_requests() -> Tape:
    return while_paused(passes=False)


def late_reader(*, after: bool) -> Tape:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    update = tape.start("update_weights_from_tensor")
    late = tape.start("generate", {"input_ids": [2]}, origin="traffic")
    tape.finish(running, body=tape.answer([1]))
    if not after:
        tape.finish(late, body=tape.answer([1]))
    tape.finish(update)
    if after:
        tape.finish(late, body=tape.answer([1]))
    return tape


@holds("LOCK-53")
def writers_first() -> Tape:
    return late_reader(after=True)


@breaks("LOCK-53")
def readers_overtake() -> Tape:
    return late_reader(after=False)


def silent(took: float, *, error: str = "timeout") -> Tape:
    tape = Tape()
    with tape.refit(error=error, deadline_s=30.0):
        tape.sut("update_weights_from_tensor", status=None, error="timeout", took=took)
    return tape


@holds("LOCK-2")
def gives_up_in_time() -> Tape:
    return silent(20.0)


@breaks("LOCK-2", "given up after 600.0 s")
def gives_up_late() -> Tape:
    return silent(600.0)


@breaks("LOCK-2", "the client reported success, though POST")
def silence_is_success() -> Tape:
    return silent(20.0, error="")


@leaves_open("LOCK-2", "LOCK-51", "LOCK-52")
def all_answered() -> Tape:
    tape = Tape()
    with tape.refit(deadline_s=30.0):
        tape.bucket()
    return tape
