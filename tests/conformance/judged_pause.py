from __future__ import annotations

from conformance.rules.pause import CONTINUED_BODY, PAUSED_BODY
from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.tape import Tape

FAULT = "e0:update_weights_from_tensor#1:before:status500"


def pause(tape: Tape, mode: str = "retract", origin: str = "sut") -> None:
    tape.call("pause_generation", {"mode": mode}, body=PAUSED_BODY, origin=origin)


def resume(tape: Tape, origin: str = "sut", **rest: object) -> None:
    tape.call("continue_generation", {}, body=rest.pop("body", CONTINUED_BODY), origin=origin, **rest)


@holds("PAUSE-1")
def failed_refit_continues() -> Tape:
    tape = Tape()
    with tape.refit(error="bucket failed"):
        pause(tape)
        tape.bucket(status=500, fault=FAULT)
        resume(tape)
    return tape


@holds("PAUSE-1")
def held_engines_may_stay_paused() -> Tape:
    tape = failed_refit_continues()
    with tape.refit(2, error="bucket failed"):
        pause(tape)
        tape.bucket(status=500, fault=FAULT)
        tape.trainer("ENGINE_HELD", engine="e0", incarnation=0, reason="torn")
    return tape


@breaks("PAUSE-1", "left paused (retract)")
def failed_refit_stays_paused() -> Tape:
    tape = Tape()
    with tape.refit(error="bucket failed"):
        pause(tape)
        tape.bucket(status=500, fault=FAULT)
    return tape


@breaks("PAUSE-1", "left paused (unknown)")
def a_pause_without_an_answer_counts() -> Tape:
    tape = Tape()
    with tape.refit(error="pause failed"):
        tape.call("pause_generation", {"mode": "retract"}, status=None, error="timeout", origin="sut")
    return tape


@leaves_open("PAUSE-1", "PAUSE-2", "PAUSE-3", "PAUSE-5", "PAUSE-6")
def only_success() -> Tape:
    tape = Tape()
    with tape.refit():
        pause(tape)
        resume(tape)
    return tape


@holds("PAUSE-2")
def continue_until_confirmed() -> Tape:
    tape = Tape()
    with tape.refit():
        pause(tape)
        resume(tape, status=None, error="dropped", fault="e0:continue_generation#1:before:drop")
        resume(tape)
    return tape


@breaks("PAUSE-2", "given up")
def continue_once() -> Tape:
    tape = Tape()
    with tape.refit(error="continue failed"):
        pause(tape)
        resume(tape, status=None, error="dropped", fault="e0:continue_generation#1:before:drop")
    return tape


def with_traffic(finish: str) -> Tape:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    with tape.refit():
        pause(tape)
        tape.bucket()
        resume(tape)
    tape.finish(running, body=tape.answer([1, 2], finish=finish, retractions=1))
    return tape


@holds("PAUSE-3")
def traffic_survives() -> Tape:
    return with_traffic("length")


@holds("PAUSE-3")
def abort_before_the_pause_is_answered() -> Tape:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    with tape.refit():
        pausing = tape.start("pause_generation", {"mode": "abort"}, origin="sut")
        tape.finish(running, body=tape.answer([1], finish="abort"))
        tape.finish(pausing, body=PAUSED_BODY)
        tape.bucket()
    return tape


@breaks("PAUSE-3", "aborted")
def abort_of_a_later_request() -> Tape:
    tape = Tape()
    with tape.refit():
        pause(tape, "abort")
        late = tape.start("generate", {"input_ids": [1]}, origin="traffic")
        tape.bucket()
        tape.finish(late, body=tape.answer([1], finish="abort"))
    return tape


@breaks("PAUSE-3", "aborted")
def traffic_aborted() -> Tape:
    return with_traffic("abort")


@holds("PAUSE-5")
def continue_after_the_update() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket()
        resume(tape)
    return tape


@breaks("PAUSE-5", "still under way")
def continue_during_the_update() -> Tape:
    tape = Tape()
    with tape.refit():
        update = tape.start("update_weights_from_tensor", origin="sut")
        resume(tape)
        tape.finish(update)
    return tape


@breaks("PAUSE-5", "the session is open")
def continue_in_an_open_session() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.sut("begin_weight_update", {})
        tape.bucket()
        resume(tape)
        tape.sut("end_weight_update", {})
    return tape


@holds("PAUSE-5")
def continue_after_an_end_that_failed() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.sut("begin_weight_update", {})
        tape.bucket()
        tape.sut("end_weight_update", {}, 500)
        resume(tape)
    return tape


@holds("PAUSE-6")
def continue_after_the_tags() -> Tape:
    tape = Tape()
    tape.sut("release_memory_occupation", {}, body=None)
    tape.sut("resume_memory_occupation", {}, body=None)
    resume(tape)
    return tape


@breaks("PAUSE-6", "cuda_graph, kv_cache released")
def continue_on_released_memory() -> Tape:
    tape = Tape()
    tape.sut("release_memory_occupation", {}, body=None)
    tape.sut("resume_memory_occupation", {"tags": ["weights"]}, body=None)
    resume(tape)
    return tape


def all_modes(second: object = PAUSED_BODY) -> Tape:
    tape = Tape()
    resume(tape, origin="probe")
    pause(tape, "retract", "probe")
    tape.call("pause_generation", {"mode": "in_place"}, body=second)
    resume(tape, origin="probe")
    return tape


@holds("PAUSE-51")
def twice() -> Tape:
    return all_modes()


@breaks("PAUSE-51")
def twice_says_something_else() -> Tape:
    return all_modes({"message": "already paused", "status": "ok"})


@holds("PAUSE-52")
def bogus_mode_refused() -> Tape:
    tape = Tape()
    tape.call("pause_generation", {"mode": "bogus"}, 400, {"message": "validation"})
    return tape


@breaks("PAUSE-52", "200")
def bogus_mode_taken() -> Tape:
    tape = Tape()
    pause(tape, "bogus", "probe")
    return tape


def fate(mode: str, *, during: bool, finish: str, retractions: int) -> Tape:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    pausing = tape.start("pause_generation", {"mode": mode})
    end = tape.answer([1, 2], finish=finish, retractions=retractions)
    if during:
        tape.finish(running, body=end)
    tape.finish(pausing, body=PAUSED_BODY)
    resume(tape, origin="probe")
    if not during:
        tape.finish(running, body=end)
    return tape


@holds("PAUSE-53")
def abort_ends_them() -> Tape:
    return fate("abort", during=True, finish="abort", retractions=0)


@breaks("PAUSE-53", "finish 'length'")
def abort_lets_them_finish() -> Tape:
    return fate("abort", during=False, finish="length", retractions=0)


@holds("PAUSE-54")
def retract_queues_them() -> Tape:
    return fate("retract", during=False, finish="length", retractions=1)


@breaks("PAUSE-54", "0 retractions")
def retract_only_freezes_them() -> Tape:
    return fate("retract", during=False, finish="length", retractions=0)


@breaks("PAUSE-54", "finish 'abort'")
def retract_aborts_them() -> Tape:
    return fate("retract", during=False, finish="abort", retractions=1)


@holds("PAUSE-55")
def in_place_freezes_them() -> Tape:
    return fate("in_place", during=False, finish="length", retractions=0)


@breaks("PAUSE-55", "1 retractions")
def in_place_retracts_them() -> Tape:
    return fate("in_place", during=False, finish="length", retractions=1)


def new_request(*, waits: bool) -> Tape:
    tape = Tape()
    pause(tape, origin="probe")
    late = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    if not waits:
        tape.finish(late, body=tape.answer([1]))
    resume(tape, origin="probe")
    if waits:
        tape.finish(late, body=tape.answer([1]))
    return tape


@holds("PAUSE-56")
def new_requests_wait() -> Tape:
    return new_request(waits=True)


@breaks("PAUSE-56")
def new_requests_are_served() -> Tape:
    return new_request(waits=False)
