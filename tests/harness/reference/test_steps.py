"""Single steps of the envelope: which deadline they spend, how often they ask, what they say, whom they leave alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from fakes.outcome import Outcome
from fakes.world import World
from harness.reference.control import Control
from harness.reference.deadline import Deadline
from harness.reference.engines import Engine, Session, Weights
from harness.reference.errors import BadState, CallFailed, DeadlineSpent, NeverIdle, NoEngines, Terminal
from harness.reference.guards import Guards
from harness.reference.profile import EngineProfile
from tests.harness.reference.fleet import BEGIN, END, UPDATE, Rig, client, failing, no, state

OK = Outcome(ending="reply", status=200, body={"success": True, "message": ""})
BUSY = Outcome(ending="reply", status=400, body="Flush cache failed.\n")
OPEN = no(400, "a weight-update session is already open; call end_weight_update() first")


@dataclass
class Wire:
    """An endpoint that gives its answers in order, then yes, each after `takes` seconds, and keeps every call."""

    world: World
    name: str = "e0"
    says: list[Outcome] = field(default_factory=list)
    takes: float = 0.0
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    tp: int = 1
    gpu_ids: tuple[int, ...] = ()
    incarnation: int = 0

    def start(self, op: str, body: Any = None, *, method: str = "POST", timeout_s: float) -> Any:
        self.calls.append((op, body, method, round(timeout_s, 3), round(self.world.now, 3)))

        def wait() -> Outcome:
            self.world.sleep(min(self.takes, timeout_s))
            return self.says.pop(0) if self.says else OK

        return wait

    @property
    def times(self) -> list[float]:
        return [call[-1] for call in self.calls]

    @property
    def timeouts(self) -> list[float]:
        return [call[-2] for call in self.calls]


def made(count: int = 1, version: str = "0.5.23", **more: Any) -> tuple[World, Control, list[Wire], list[Engine]]:
    world = World()
    wires = [Wire(world, f"e{i}") for i in range(count)]
    control = Control(world.clock, EngineProfile.of(version), "retract", **more)
    return world, control, wires, [Engine(wire, (i,), 0) for i, wire in enumerate(wires)]


def later(world: World, total: float, spent: float) -> Deadline:
    deadline = Deadline(world.clock, total)
    world.sleep(spent)
    return deadline


@pytest.mark.parametrize(
    ("step", "run"),
    [
        ("connect", lambda c, e, d: c.connect(e, d)),
        ("pause", lambda c, e, d: c.pause(e, d)),
        ("flush", lambda c, e, d: c.flush(e, d)),
        ("begin", lambda c, e, d: c.begin(e, d)),
        ("onload_weights", lambda c, e, d: c.onload_weights(e, d)),
        ("release", lambda c, e, d: c.release(e, d)),
    ],
)
def test_a_step_without_time_is_not_begun_and_is_named(step: str, run: Any) -> None:
    world, control, (wire,), engines = made()
    deadline = later(world, 10, 7.5)
    with pytest.raises(DeadlineSpent) as error:
        run(control, engines, deadline)
    assert str(error.value) == f"{step}: the refit's deadline is spent"
    assert wire.calls == []
    assert engines[0].tags_known
    assert not engines[0].paused


def test_beginning_again_has_no_time_of_its_own() -> None:
    for said, session in ((OPEN, Session.CLOSED), (OK, Session.OPEN)):
        world, control, (wire,), (engine,) = made()
        engine.session, wire.takes, wire.says = session, 7.5, [said]
        with pytest.raises(DeadlineSpent, match=r"^begin: the refit's deadline is spent$"):
            control.begin([engine], Deadline(world.clock, 10))
        assert len(wire.calls) == 1


def test_beginning_without_time_closes_nothing_either() -> None:
    world, control, (wire,), (engine,) = made()
    engine.session = Session.OPEN
    with pytest.raises(DeadlineSpent, match=r"^begin: the refit's deadline is spent$"):
        control.begin([engine], later(world, 10, 7.5))
    assert wire.calls == []


def test_the_last_question_is_asked_when_the_wait_is_just_over() -> None:
    class Fifth(Deadline):
        def work(self, step: str) -> float:
            return 0.2

    world, control, (wire,), engines = made()
    wire.says = [BUSY] * 9
    with pytest.raises(NeverIdle):
        control.flush(engines, Fifth(world.clock, 1))
    assert wire.times == [0, 0.1]


def test_what_each_call_carries() -> None:
    world, control, (wire,), engines = made()
    deadline = Deadline(world.clock, 100)
    control.connect(engines, deadline)
    control.pause(engines, deadline)
    control.flush(engines, deadline)
    control.begin(engines, deadline)
    control.end(engines, 5)
    control.release(engines, deadline)
    control.onload_weights(engines, deadline)
    control.onload_kv(engines, 3)
    control.resume_generation(engines, deadline)
    assert [call[:4] for call in wire.calls] == [
        ("model_info", None, "GET", 75.0),
        ("pause_generation", {"mode": "retract"}, "POST", 75.0),
        ("flush_cache", None, "POST", 75.0),
        (BEGIN, {}, "POST", 75.0),
        (END, {}, "POST", 5),
        ("release_memory_occupation", {"tags": ["kv_cache", "cuda_graph", "weights"]}, "POST", 75.0),
        ("resume_memory_occupation", {"tags": ["weights"]}, "POST", 75.0),
        ("resume_memory_occupation", {"tags": ["kv_cache", "cuda_graph"]}, "POST", 3),
        ("continue_generation", {}, "POST", 10.0),
    ]


@pytest.mark.parametrize(
    ("total", "asked"),
    [
        (20, [0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3]),
        (1000, [0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3, 16.3, 21.3, 26.3]),
    ],
)
def test_a_busy_engine_is_asked_with_doubling_waits_for_half_of_the_time_or_thirty_seconds(
    total: float, asked: list[float]
) -> None:
    world, control, (wire,), engines = made()
    wire.says = [BUSY] * 99
    with pytest.raises(NeverIdle) as error:
        control.flush(engines, Deadline(world.clock, total))
    assert str(error.value) == "flush failed on e0: HTTP 400: Flush cache failed.\n"
    assert (error.value.phase, error.value.engine) == ("flush", "e0")
    assert wire.times == pytest.approx(asked)


def test_only_a_400_is_not_idle_yet() -> None:
    for status in (401, 404, 500):
        world, control, (wire,), engines = made()
        wire.says = [Outcome(ending="reply", status=status, body="x")]
        with pytest.raises(CallFailed, match=f"^flush failed on e0: HTTP {status}: x$") as error:
            control.flush(engines, Deadline(world.clock, 100))
        assert not isinstance(error.value, NeverIdle)
        assert len(wire.calls) == 1


def test_a_session_left_open_is_closed_only_where_the_engine_says_so() -> None:
    world, control, wires, engines = made(3)
    wires[0].says = [Outcome(ending="reply", status=500, body=OPEN.body)]
    wires[1].says = [OPEN]
    with pytest.raises(CallFailed) as error:
        control.begin(engines, Deadline(world.clock, 100))
    assert error.value.engine == "e0"
    assert [[call[0] for call in wire.calls] for wire in wires] == [[BEGIN], [BEGIN, END, BEGIN], [BEGIN]]
    assert [engine.session for engine in engines] == [Session.UNKNOWN, Session.OPEN, Session.OPEN]
    assert [engine.end_was_sent for engine in engines] == [False, False, False]


def test_our_own_open_session_is_closed_first_and_only_ours() -> None:
    world, control, wires, engines = made(2)
    engines[1].session = Session.OPEN
    control.begin(engines, Deadline(world.clock, 100))
    assert [[call[0] for call in wire.calls] for wire in wires] == [[BEGIN], [END, BEGIN]]


def test_without_sessions_there_is_no_begin() -> None:
    world, control, (wire,), engines = made(version="0.5.20")
    control.begin(engines, later(world, 10, 9.9))
    assert wire.calls == []


@pytest.mark.parametrize(
    ("said", "session", "weights"),
    [
        (OK, Session.CLOSED, Weights.WHOLE),
        (no(400, "no weight-update session is open; call begin_weight_update() first"), Session.CLOSED, Weights.TORN),
        (no(400, "something else"), Session.OPEN, Weights.TORN),
        (no(200, "something else"), Session.OPEN, Weights.TORN),
        (no(500, "boom"), Session.UNKNOWN, Weights.TORN),
        (Outcome(ending="dropped"), Session.UNKNOWN, Weights.TORN),
    ],
)
def test_what_an_end_says_of_the_session(said: Outcome, session: Session, weights: Weights) -> None:
    _, control, (wire,), (engine,) = made()
    engine.session, engine.weights, engine.complete = Session.OPEN, Weights.TORN, True
    wire.says = [said]
    if said is OK:
        control.end([engine], 1)
    else:
        with pytest.raises(CallFailed):
            control.end([engine], 1)
    assert (engine.session, engine.weights, engine.end_was_sent) == (session, weights, True)


@pytest.mark.parametrize(("backup", "weights"), [(False, Weights.HOLLOW), (True, Weights.WHOLE)])
def test_released_weights_are_hollow_unless_there_is_a_copy(backup: bool, weights: Weights) -> None:
    world, control, wires, engines = made(2, weights_survive_release=backup)
    engines[1].released = {"weights"}
    control.release(engines, Deadline(world.clock, 100))
    assert [engine.weights for engine in engines] == [weights, Weights.WHOLE]
    assert wires[1].calls[0][1] == {"tags": ["kv_cache", "cuda_graph"]}
    assert all(engine.released == {"weights", "kv_cache", "cuda_graph"} and engine.tags_known for engine in engines)
    control.release(engines, Deadline(world.clock, 100))
    assert [len(wire.calls) for wire in wires] == [1, 1]


def test_a_resume_that_fails_leaves_the_tags_unknown() -> None:
    _, control, (wire,), (engine,) = made()
    engine.released, wire.says = {"kv_cache", "weights"}, [no(400, "x")]
    with pytest.raises(CallFailed, match="onload_kv failed on e0"):
        control.onload_kv([engine], 1)
    assert wire.calls[0][1] == {"tags": ["kv_cache"]}
    assert not engine.tags_known
    assert engine.released == {"kv_cache", "weights"}


@pytest.mark.parametrize(("left", "timeout"), [(100, 10), (20, 10), (11, 10), (8, 7), (1.2, 0.3), (0.5, 0.125)])
def test_one_continue_leaves_time_for_another(left: float, timeout: float) -> None:
    world, control, (wire,), engines = made()
    control.resume_generation(engines, later(world, 100, 100 - left))
    assert wire.timeouts == pytest.approx([timeout])


def test_continue_is_asked_with_doubling_waits_only_where_it_failed_and_not_where_nobody_is() -> None:
    world, control, wires, engines = made(3)
    for engine in engines:
        engine.paused = True
    wires[1].says = [no(500, "x")] * 5
    wires[2].says = [Outcome(ending="refused", error="connection refused")]
    control.resume_generation(engines[:2], Deadline(world.clock, 100))
    assert wires[1].times == pytest.approx([0, 0.1, 0.3, 0.7, 1.5, 3.1])
    assert [len(wire.calls) for wire in wires] == [1, 6, 0]
    assert [engine.paused for engine in engines] == [False, False, True]
    with pytest.raises(CallFailed, match="continue failed on e2: refused"):
        control.resume_generation(engines[2:], Deadline(world.clock, 100))
    assert engines[2].lost == "it is gone: connection refused"


def test_continue_gives_up_with_the_deadline_and_never_sleeps_beyond_it() -> None:
    world, control, (wire,), engines = made()
    wire.says, wire.takes = [no(500, "x")] * 99, 0.25
    with pytest.raises(CallFailed, match="continue failed on e0: HTTP 500"):
        control.resume_generation(engines, Deadline(world.clock, 3))
    assert world.now == pytest.approx(3.0)
    assert len(wire.calls) > 3
    calls = len(wire.calls)
    with pytest.raises(DeadlineSpent, match=r"^continue: the refit's deadline is spent$"):
        control.resume_generation(engines, later(world, 3, 3))
    assert len(wire.calls) == calls
    control.resume_generation([], later(world, 3, 3))


def test_a_deadline_keeps_a_reserve() -> None:
    world = World()
    for total, reserve in ((100, 25), (8, 2), (240, 60), (1000, 60)):
        deadline = Deadline(world.clock, total)
        assert deadline.work("x") == pytest.approx(total - reserve)
        assert deadline.last() == pytest.approx(total)
        assert deadline.giving_back("x") == pytest.approx(total - reserve)
        assert deadline.meeting("x") == pytest.approx(total - reserve + reserve / 4)
        assert deadline.meeting("x", share=0.5) == pytest.approx(total - reserve + reserve / 2)
    deadline = Deadline(world.clock, 100)
    world.sleep(75)
    with pytest.raises(DeadlineSpent, match=r"^x: the refit's deadline is spent$"):
        deadline.work("x")
    assert deadline.giving_back("x") == pytest.approx(12.5)
    assert deadline.meeting("x") == pytest.approx(6.25)
    world.sleep(6.25)
    with pytest.raises(DeadlineSpent, match=r"^x: the refit's deadline is spent$"):
        deadline.meeting("x")
    world.sleep(18.75)
    assert deadline.last() == pytest.approx(0)
    with pytest.raises(DeadlineSpent, match=r"^x: the refit's deadline is spent, its reserve too$"):
        deadline.giving_back("x")
    for total in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="needs a deadline above 0 s"):
            Deadline(world.clock, total)


def test_a_state_that_cannot_be_complete_is_refused_before_anything_is_paused() -> None:
    rig = Rig()
    sut = client(rig)
    sut.set_weights({}, "v0")
    with pytest.raises(BadState, match=r"^the policy's state is empty$"):
        sut.refit(100)
    sut.set_weights(state(), "v1")
    sut.refit(100)
    calls = len(rig.e[0].log)
    sut.set_weights({"w3": state()["w3"]}, "v2")
    with pytest.raises(BadState) as error:
        sut.refit(100)
    assert str(error.value) == "the state lacks 4 tensors of the last complete one: bias, w0, w1"
    assert len(rig.e[0].log) == calls
    assert rig.marker("REFIT_FAILURE")["phase"] == "prepare"
    sut.set_weights(state(2.0, more=state()["w0"]), "v3")
    assert sut.refit(100).version == "v3"


def test_no_engine_is_a_reason_before_a_bad_state() -> None:
    rig = Rig(engines=2)
    for engine in rig.e:
        engine.dead = True
    sut, _ = failing(rig)
    sut.set_weights({}, "v2")
    with pytest.raises(NoEngines) as error:
        sut.refit(100)
    assert str(error.value) == (
        "no engine is left: e0: it is gone: connection refused; e1: it is gone: connection refused"
    )


def test_all_that_were_left_out_are_named() -> None:
    rig = Rig(engines=3)
    for engine in rig.e[:2]:
        engine.script[UPDATE, 3] = "drop before"
    sut, _ = failing(rig, policy="quarantine")
    assert sut.refit(100).detail == "without e0, e1"


def test_closing_leaves_what_is_lost_alone_and_nothing_at_all_when_terminal() -> None:
    for policy, wanted in (("quarantine", [["e0"]]), ("terminal", [])):
        rig = Rig(engines=2)
        rig.e[1].script[UPDATE, 3] = "drop before"
        sut, _ = failing(rig, policy=policy)
        closed: list[list[str]] = []
        sut._client.transport.close = lambda engines, closed=closed: closed.append([e.name for e in engines])
        sut._client.close()
        assert closed == wanted
    with pytest.raises(Terminal) as error:
        sut.refit(100)
    assert str(error.value).startswith("an earlier refit failed for good: CallFailed: transfer failed on e1: dropped")


def test_a_group_that_was_made_anew_is_announced_although_no_engine_is_new() -> None:
    rig = Rig()
    sut = client(rig)
    sut.refit(100)
    sut._client.transport.connect = lambda engines, deadline: True
    sut.refit(100)
    assert rig.names().count("GROUP_READY") == 2


def test_what_fails_while_giving_back_is_a_note_that_says_which() -> None:
    rig = Rig()
    rig.e[0].script[UPDATE, 1] = "400 before"
    rig.kit.live_exports = lambda: 1 // 0
    _, error = failing(rig)
    assert any(note.startswith("afterwards, offload: ZeroDivisionError: ") for note in error.__notes__)
    guards, log = Guards(), []  # type: ignore[var-annotated]
    guards.hold("one", lambda: log.append("one"))
    guards.hold("two", lambda: {}["two"])
    guards.hold("three", lambda: {}["three"])
    with pytest.raises(KeyError) as caught, guards:
        pass
    assert (str(caught.value), log) == ("'three'", ["one"])
    assert caught.value.__notes__ == ["afterwards, two: KeyError: 'two'"]
