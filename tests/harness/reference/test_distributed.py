"""The reference client over a process group, on fake engines in a world: what it asks, in which order, and when it
stops."""

from __future__ import annotations

import pytest

from harness.bench import Bench
from harness.history import History
from harness.reference.adapter import ReferenceSut, distributed
from harness.reference.transports.side_group import choose_cumem, unbound
from harness.runner import Runner
from harness.scenario import Scenario
from harness.settings import Settings
from harness.suites import Book

INIT, DESTROY = "init_weights_update_group", "destroy_weights_update_group"
UPDATE = "update_weights_from_distributed"


def play(go, *, version="0.5.23", tp=1, sut="reference", **options) -> History:
    scenario = Scenario("toy/x", frozenset({"X-1"}), go, "fake only: a test", side="refit", options=options)
    runner = Runner(Settings(versions=(version,), tp=tp, lane="fake"), Book())
    try:
        return runner.run_once(scenario, version, sut)
    finally:
        runner.close()


def refits(bench: Bench, *numbers: int, engines: int = 1, deadline_s: float = 60.0) -> None:
    bench.transport = "distributed"
    bench.fleet(engines)
    for number in numbers:
        bench.refit(number, deadline_s=deadline_s)


def ops(history: History, engine: str = "e0") -> list[str]:
    return [call.op for call in history.calls(engine=engine)]


def test_the_calls_of_two_refits():
    history = play(lambda bench: refits(bench, 1, 2))
    one = ["pause_generation", "flush_cache", "begin_weight_update", *[UPDATE] * 3]
    one += ["end_weight_update", "continue_generation"]
    assert ops(history) == ["model_info", DESTROY, INIT, *one, *one, DESTROY]
    assert [refit.ok for refit in history.refits()] == [True, True]


def test_without_sessions():
    history = play(lambda bench: refits(bench, 1), version="0.5.20")
    assert history.refits()[0].ok
    assert "begin_weight_update" not in ops(history)


def test_the_numbers_of_a_fleet_and_the_announcement():
    history = play(lambda bench: refits(bench, 1, engines=3), tp=2)
    inits = history.calls(INIT)
    assert [(c.engine, c.arg("rank_offset"), c.arg("world_size")) for c in inits] == [
        ("e0", 1, 7), ("e1", 3, 7), ("e2", 5, 7),
    ]  # fmt: skip
    updates = history.calls(UPDATE, engine="e1")
    assert {dtype for call in updates for dtype in call.arg("dtypes")} == {"bfloat16"}
    assert [call.arg("weight_version") for call in updates] == [None, None, "v1"]
    assert {call.arg("flush_cache") for call in updates} == {False}
    assert sum(len(call.arg("names")) for call in updates) == len(history.trainer("broadcast"))


def test_one_deadline_is_spent_by_all():
    def go(bench: Bench) -> None:
        bench.transport = "distributed"
        bench.fleet(2)
        bench.fault(f"e0:{INIT}#1:before:hang")
        bench.refit(1, deadline_s=20.0)

    history = play(go)
    refit = history.refits()[0]
    assert not refit.ok
    assert refit.end_t - refit.t <= 20.0
    assert "rank 1" in refit.error or "e0" in refit.error


def test_a_refusal_ends_the_wait_and_quotes_the_engine():
    def go(bench: Bench) -> None:
        bench.transport = "distributed"
        bench.fleet(2)
        bench.refit(1)
        bench.fault(f"e1:{UPDATE}#1:before:status400")
        bench.refit(2)
        bench.refit(2)

    history = play(go, tp=2)
    first, second, third = history.refits()
    assert (first.ok, second.ok, third.ok) == (True, False, True)
    assert second.error == "transfer failed on e1: HTTP 400: injected failure"
    assert second.end_t - second.t < 2.0
    assert not history.facts("refit", phase="end", ok=None)
    assert len(history.trainer("group_open")) == 2  # the first one was out of step


def test_it_keeps_the_group_while_the_engines_stay():
    history = play(lambda bench: refits(bench, 1, 2, 3))
    assert len(history.calls(INIT)) == 1


def test_a_new_incarnation_is_a_new_group():
    def go(bench: Bench) -> None:
        refits(bench, 1, engines=2)
        bench.engines[1].restart()
        bench.refit(2)

    history = play(go)
    assert [refit.ok for refit in history.refits()] == [True, True]
    assert [(c.engine, c.incarnation) for c in history.calls(INIT)] == [("e0", 0), ("e1", 0), ("e0", 0), ("e1", 1)]
    assert [note.get("live") for note in history.trainer("group_open")] == [1, 1]


def test_ready_says_what_has_joined():
    history = play(lambda bench: refits(bench, 1, engines=2), tp=2)
    (ready,) = history.trainer("GROUP_READY")
    assert (ready.get("world_size"), ready.get("engines")) == (5, 2)


def test_closing_a_client_that_never_refitted_asks_nothing():
    def go(bench: Bench) -> None:
        bench.transport = "distributed"
        assert bench.sut is not None

    assert ops(play(go)) == []


def test_a_terminal_client_says_no_farewell():
    def go(bench: Bench) -> None:
        refits(bench, 1)
        bench.fault(f"e0:{UPDATE}#1:before:status500")
        bench.refit(2)

    runner = Runner(Settings(versions=("0.5.23",), tp=1, lane="fake", policy="terminal"), Book())
    scenario = Scenario("toy/x", frozenset({"X-1"}), go, "fake only: a test", side="refit")
    history = runner.run_once(scenario, "0.5.23", "reference")
    runner.close()
    closing = history.facts("closing")[0].pos
    assert [c.op for c in history.calls() if c.pos > closing] == []


def test_the_lock_is_held_for_the_transfer_only():
    history = play(lambda bench: refits(bench, 1))
    acquired, released = history.trainer("lock")
    updates = history.calls(UPDATE)
    assert acquired.pos < updates[0].pos
    assert updates[-1].end_pos < released.pos < history.calls("end_weight_update")[0].pos
    assert acquired.get("lease_s") <= 60.0


def test_without_a_transport_in_the_scenario_the_factory_decides():
    def go(bench: Bench) -> None:
        bench.fleet(1)
        bench.refit(1)

    history = play(go, sut="harness.reference.adapter:distributed")
    assert history.refits()[0].ok
    assert UPDATE in ops(history)
    assert distributed().capabilities().transports == {"distributed"}
    every = {"tensor", "distributed", "checkpoint-engine", "disk", "ipc", "lora"}
    assert ReferenceSut().capabilities().transports == every


def test_an_unknown_transport():
    known = "tensor or distributed or checkpoint-engine or disk or ipc or lora"
    with pytest.raises(ValueError, match=f"transport must be {known}, not 'pigeon'"):
        ReferenceSut(transport="pigeon")


class Group:
    bound_device_id: object = "cuda:0"


def test_the_default_group_is_unbound_inside_and_bound_again_on_every_way_out():
    group = Group()
    with unbound(group):
        assert group.bound_device_id is None
    assert group.bound_device_id == "cuda:0"
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error), unbound(group):
            raise error
        assert group.bound_device_id == "cuda:0"
    with unbound(None):
        pass


def test_cumem_is_what_the_engines_have():
    env = {"NCCL_CUMEM_ENABLE": "1"}
    choose_cumem(env)
    assert env == {"NCCL_CUMEM_ENABLE": "0"}
