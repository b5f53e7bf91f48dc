"""What may be concluded of an engine from calls alone."""

from __future__ import annotations

from conformance.exports import Origin, exports, origins
from conformance.refits import fleet_parts, parts, quarantined, set_aside
from conformance.tokens import same
from conformance.view import State, acted, died, payloads, state_at, states, tp
from fakes.trace import Fact
from tests.conformance.tape import Tape


def after(tape: Tape, incarnation: int = 0) -> State:
    return state_at(tape.history, "e0", incarnation, tape.history.length)


def test_an_accepted_begin_opens_and_a_refused_one_does_not() -> None:
    tape = Tape()
    tape.message("begin_weight_update", 400, "no")
    assert after(tape).session == "closed"
    tape.call("begin_weight_update")
    assert after(tape).session == "open"


def test_silence_leaves_the_session_and_the_pause_unknown() -> None:
    tape = Tape()
    tape.call("begin_weight_update", status=None, error="timeout")
    tape.call("pause_generation", {"mode": "retract"}, None, error="timeout")
    assert after(tape).session == "unknown"
    assert after(tape).paused == "unknown"


def test_a_call_that_the_gate_kept_back_had_no_effect_and_one_that_it_let_through_had() -> None:
    tape = Tape()
    tape.call("begin_weight_update", status=500, body="", fault="e0:begin_weight_update#1:before:status500")
    assert after(tape).session == "closed"
    tape.call("begin_weight_update", status=None, error="dropped", fault="e0:begin_weight_update#2:after:drop")
    assert after(tape).session == "open"
    assert not after(tape).dead
    first, second = tape.history.calls_
    assert acted(first) is False
    assert acted(second) is True
    assert not died(second)


def test_a_dropped_connection_without_a_fault_is_a_death_of_that_incarnation() -> None:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]})
    tape.call("flush_cache", status=None, error="dropped")
    tape.finish(running, None, error="dropped")
    assert after(tape).dead
    assert after(tape).running == frozenset()
    tape.call("flush_cache", incarnation=1)
    assert not after(tape, 1).dead


def test_running_and_waiting_requests() -> None:
    tape = Tape()
    first = tape.start("generate", {"input_ids": [1]})
    tape.call("pause_generation", {"mode": "in_place"})
    late = tape.start("generate", {"input_ids": [2]})
    probe = tape.call("flush_cache")
    tape.call("continue_generation")
    tape.finish(first, body=tape.answer([1]))
    tape.finish(late, body=tape.answer([1]))
    state = states(tape.history)[probe]
    assert state.running == {first, late}
    assert state.waiting == {late}
    assert state.busy_until > 0
    assert after(tape).running == frozenset()
    assert after(tape).busy_until == -1


def test_no_tags_means_all_of_them() -> None:
    tape = Tape()
    tape.call("release_memory_occupation", {}, body=None)
    assert after(tape).released == {"weights", "kv_cache", "cuda_graph"}
    tape.call("resume_memory_occupation", {"tags": ["weights"]}, body=None)
    assert after(tape).released == {"kv_cache", "cuda_graph"}


def test_the_label_is_the_last_accepted_one_and_unknown_after_a_refused_flush() -> None:
    tape = Tape()
    tape.call("update_weights_from_tensor", {"weight_version": "v1"})
    tape.call("update_weights_from_tensor", {})
    tape.message("update_weights_from_tensor", 400, "no", {"weight_version": "v2"})
    assert after(tape).label == "v1"
    tape.message("update_weights_from_tensor", 400, "Weights were updated, but ...", {"weight_version": "v3"})
    assert after(tape).label == ""


def test_the_state_at_a_place_ignores_what_came_later() -> None:
    tape = Tape()
    tape.call("begin_weight_update")
    here = tape.history.length - 1
    tape.call("end_weight_update")
    assert state_at(tape.history, "e0", 0, here).session == "open"


def test_payloads_are_named_by_their_digests() -> None:
    tape = Tape()
    tape.call("update_weights_from_tensor", {"serialized_named_tensors": [{"len": 9, "sha256": "ab"}, "short"]})
    assert payloads(tape.history.calls_[0]) == ["ab", "short"]


def test_the_size_of_an_engine_is_its_own_where_it_is_noted() -> None:
    tape = Tape(tp=2)
    tape.fact("engine", engine="e1", tp=1)
    assert (tp(tape.history, "e0"), tp(tape.history, "e1")) == (2, 1)


def test_the_same_answer() -> None:
    assert same(((1, 2), (-1.0, -2.0)), ((1, 2), (-1.01, -2.0)))
    assert same(((1, 2), (-1.0, -2.0)), ((1,), ()))
    assert not same(((1, 2), (-1.0, -2.0)), ((1, 3), (-1.0, -2.0)))
    assert not same(((1, 2), (-1.0, -2.0)), ((1, 2), (-1.0, -2.5)))
    assert not same(((), ()), ((1,), ()))


def held(name: str, *, when: int) -> Tape:
    tape = Tape()
    for index in (1, 2):
        with tape.refit(index, error="x"):
            tape.bucket()
            if index == when:
                tape.trainer(name, engine="e0", incarnation=0)
    return tape


def test_held_speaks_of_its_own_refit_and_lost_of_all_that_follow() -> None:
    first, second = parts(held("ENGINE_HELD", when=1).history)
    history = held("ENGINE_HELD", when=1).history
    assert (set_aside(history, first), set_aside(history, second)) == (True, False)
    history = held("ENGINE_LOST", when=1).history
    assert (quarantined(history, first), quarantined(history, second)) == (True, True)
    history = held("ENGINE_LOST", when=2).history
    assert (quarantined(history, first), quarantined(history, second)) == (False, True)


def test_an_engine_that_a_refit_never_called_has_an_empty_part() -> None:
    tape = Tape()
    tape.gen([1], engine="e1")
    with tape.refit():
        tape.bucket()
    assert [(p.engine, len(p.calls)) for p in fleet_parts(tape.history)] == [("e0", 1), ("e1", 0)]


def test_exports_are_found_with_the_update_that_carried_them() -> None:
    tape = Tape()
    tape.trainer("export", export=7, sha256="p0", names=["norm"], consumers=[["e0", 0]])
    tape.bucket()
    tape.trainer("release", export=7)
    tape.trainer("free", export=7, exports=[7])
    (export,) = exports(tape.history)
    assert export.call is not None
    assert (len(export.released), len(export.gone)) == (1, 1)
    assert origins(tape.history) == {"p0": Origin(0, "e0", 0, frozenset({"norm"}))}


def test_an_incarnation_that_was_there_before_a_refit_and_not_called_is_a_part_of_it() -> None:
    tape = Tape()
    with tape.refit(1):
        tape.bucket(engine="e0")
        tape.bucket(engine="e1")
        tape.trainer("ENGINE_LOST", engine="e1", incarnation=0)
    tape.writer.write(Fact(engine="e1", incarnation=1, t=tape.t, source="harness", name="born", data={}))
    with tape.refit(2):
        tape.bucket(engine="e0")
    told = [(p.refit.index, p.engine, p.incarnation, len(p.calls)) for p in fleet_parts(tape.history)]
    assert told == [(1, "e0", 0, 1), (1, "e1", 0, 1), (2, "e0", 0, 1), (2, "e1", 1, 0)]


def test_an_incarnation_that_came_after_a_refit_is_no_part_of_it() -> None:
    tape = Tape()
    with tape.refit(1):
        tape.bucket(engine="e1")
    with tape.refit(2):
        tape.trainer("ENGINE_LOST", engine="e1", incarnation=0)
    tape.sut("model_info", engine="e1", incarnation=1)
    told = [(p.refit.index, p.engine, p.incarnation, len(p.calls)) for p in fleet_parts(tape.history)]
    assert told == [(1, "e1", 0, 1)]
