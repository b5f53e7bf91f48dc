from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_pause import pause
from tests.conformance.tape import Tape

DELAY = "e0:update_weights_from_tensor#1:before:delay=40"
HANG = "e0:update_weights_from_tensor#2:before:hang"


def refits(*, slow_ok: bool = True, hang_took: float | None = 40.0, hang_ok: bool = False) -> Tape:
    tape = Tape()
    with tape.refit(1, error="" if slow_ok else "too slow", deadline_s=60.0):
        tape.bucket(fault=DELAY, took=40.0)
    if hang_took is not None:
        with tape.refit(2, "2", error="" if hang_ok else "timeout", deadline_s=60.0):
            tape.bucket(status=None, error="timeout", fault=HANG, took=hang_took)
    return tape


@holds("LIVE-1")
def slow_is_waited_for_and_silence_ends() -> Tape:
    return refits()


@breaks("LIVE-1", "too slow")
def slow_fails() -> Tape:
    return refits(slow_ok=False)


@breaks("LIVE-1", "500.0 s")
def silence_is_waited_for() -> Tape:
    return refits(hang_took=500.0)


@breaks("LIVE-1", "the client reported success, though POST")
def silence_is_success() -> Tape:
    return refits(hang_ok=True)


@leaves_open("LIVE-1")
def only_slow() -> Tape:
    return refits(hang_took=None)


def resent(again: str) -> Tape:
    tape = Tape()
    with tape.refit(error="timeout"):
        tape.bucket(("p0",), None, error="timeout")
        if again:
            tape.bucket((again,))
    return tape


@holds("LIVE-2")
def not_sent_again() -> Tape:
    return resent("")


@holds("LIVE-2")
def another_one_sent() -> Tape:
    return resent("p1")


@breaks("LIVE-2", "sent again")
def sent_again() -> Tape:
    return resent("p0")


@leaves_open("LIVE-2")
def a_definite_no() -> Tape:
    tape = Tape()
    with tape.refit(error="no"):
        tape.bucket(status=400)
        tape.bucket()
    return tape


def health(status: int, *, paused: bool, took: float) -> Tape:
    tape = Tape()
    if paused:
        pause(tape, origin="probe")
    tape.call("health", {}, status, None, method="GET", took=took)
    return tape


@holds("LIVE-51")
@leaves_open("LIVE-52")
def healthy() -> Tape:
    return health(200, paused=False, took=1.0)


@breaks("LIVE-51", "503")
def unhealthy() -> Tape:
    return health(503, paused=False, took=20.0)


@holds("LIVE-52")
@leaves_open("LIVE-51")
def paused_is_unhealthy() -> Tape:
    return health(503, paused=True, took=20.0)


@breaks("LIVE-52", "200 after 1.0 s")
def paused_is_healthy() -> Tape:
    return health(200, paused=True, took=1.0)


@breaks("LIVE-52", "503 after 1.0 s")
def paused_is_unhealthy_at_once() -> Tape:
    return health(503, paused=True, took=1.0)


def both(op: str, running: int, paused: int) -> Tape:
    tape = Tape()
    tape.call(op, {}, running, None, method="GET")
    pause(tape, origin="probe")
    tape.call(op, {}, paused, None, method="GET")
    return tape


@holds("LIVE-53")
def ready_follows_the_pause() -> Tape:
    return both("ready", 200, 503)


@breaks("LIVE-53", "200")
def ready_while_paused() -> Tape:
    return both("ready", 200, 200)


@holds("LIVE-54")
def info_while_paused() -> Tape:
    return both("model_info", 200, 200)


@breaks("LIVE-54", "503")
def no_info_while_paused() -> Tape:
    return both("model_info", 200, 503)
