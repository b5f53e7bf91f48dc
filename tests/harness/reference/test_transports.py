"""What the transports of the reference client do when something is in the way: the lock, late joiners, folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.bench import Bench
from harness.reference.transports.distributed import DistributedTransport
from tests.harness.reference.test_distributed import DESTROY, INIT, UPDATE, ops, play

DISK = "update_weights_from_disk"


def apart(bench: Bench, engines: int = 1) -> None:
    bench.transport = "distributed"
    bench.fleet(engines)
    assert bench.sut is not None


def test_a_lock_that_is_held_is_asked_for_half_of_the_time_and_its_holder_named():
    def go(bench: Bench) -> None:
        apart(bench)
        bench.kit.lock.try_acquire("another trainer", 1000.0)
        bench.refit(1, deadline_s=40.0)
        bench.kit.lock.release("another trainer")
        bench.refit(2)

    history = play(go)
    first, second = history.refits()
    assert first.error == "transfer: the broadcast lock is held by another trainer"
    assert 14.0 < first.end_t - first.t < 16.0  # half of the 30 s of work
    assert second.ok
    assert [n.get("op") for n in history.trainer("lock") if n.get("owner") != "another trainer"] == [
        "acquire", "release",
    ]  # fmt: skip


def test_a_lock_that_comes_free_is_taken_at_once():
    def go(bench: Bench) -> None:
        apart(bench)
        bench.kit.lock.try_acquire("another trainer", 3.0)
        bench.refit(1)

    (refit,) = play(go).refits()
    assert refit.ok
    assert 2.5 < refit.end_t - refit.t < 3.5


def test_a_failed_transfer_gives_the_lock_back():
    def go(bench: Bench) -> None:
        apart(bench)
        bench.fault(f"e0:{UPDATE}#1:before:status500")
        bench.refit(1)
        assert bench.kit.lock.holder() == ""

    assert not play(go).refits()[0].ok


@pytest.mark.parametrize("action", ["status400", "drop", "die"])
def test_an_engine_on_its_way_is_let_in_before_the_door_is_closed(action):
    def go(bench: Bench) -> None:
        apart(bench, 2)
        bench.fault(f"e0:{INIT}#1:before:{action}", f"e1:{INIT}#1:before:delay=0.5")
        bench.refit(1)
        assert bench.engines[1].call("flush_cache", timeout_s=5.0).status in (200, 400)

    history = play(go)
    refit = history.refits()[0]
    (late,) = history.calls(INIT, engine="e1")
    assert not refit.ok
    assert (late.status, late.end_t - late.t < 2.0) == (400, True)


def test_a_refused_destroy_ends_the_refit():
    def go(bench: Bench) -> None:
        apart(bench)
        bench.fault(f"e0:{DESTROY}#1:before:status400")
        bench.refit(1)

    history = play(go)
    assert history.refits()[0].error == "connect failed on e0: HTTP 400: injected failure"
    assert INIT not in ops(history)


def test_after_a_failure_every_engine_leaves_the_group():
    def go(bench: Bench) -> None:
        apart(bench, 3)
        bench.fault(f"e1:{UPDATE}#2:before:status500")
        bench.refit(1)

    history = play(go, tp=2)
    refit = history.refits()[0]
    failed = next(c for c in history.calls(UPDATE, engine="e1") if c.fault)
    told = [c for c in history.calls(DESTROY) if failed.end_pos < c.pos < refit.end_pos]
    assert sorted(c.engine for c in told) == ["e0", "e1", "e2"]
    assert {c.arg("group_name") for c in told} == {"weight_update_group"}
    assert {c.status for c in told} == {200}


def test_a_client_whose_group_is_gone_sends_no_farewell_twice():
    def go(bench: Bench) -> None:
        apart(bench)
        bench.refit(1)
        bench.fault(f"e0:{UPDATE}#1:before:status500")
        bench.refit(2)

    history = play(go)
    closing = history.facts("closing")[0].pos
    assert [c.op for c in history.calls() if c.pos > closing] == []


def test_nothing_is_broadcast_without_a_group():
    class Kit:
        class groups:  # noqa: N801
            env: dict[str, str] = {}  # noqa: RUF012

    transport = DistributedTransport(Kit, None, 1)
    with pytest.raises(Exception, match="there is no group"):
        transport.broadcast([], [], None, 1.0)
    assert Kit.groups.env == {"NCCL_CUMEM_ENABLE": "0"}


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_refit_from_disk_is_one_call_outside_any_session_and_leaves_no_folder():
    seen = []

    def go(bench: Bench) -> None:
        bench.transport = "disk"
        bench.fleet(1)
        for number in (1, 2):
            bench.refit(number)
            seen.append(bench.kit.disk.folders())

    history = play(go)
    assert [c.op for c in history.calls()] == [
        "model_info", *["pause_generation", "flush_cache", DISK, "continue_generation"] * 2,
    ]  # fmt: skip
    first, second = history.calls(DISK)
    assert (first.arg("weight_version"), second.arg("weight_version")) == ("v1", "v2")
    assert first.arg("flush_cache") is False
    assert Path(first.arg("model_path")).name == "refit-1"
    assert seen == [[], []]
    assert history.trainer("folder_published")[0].get("files") == 3


def test_a_folder_is_kept_while_a_reader_may_read_it():
    seen = []

    def go(bench: Bench) -> None:
        bench.transport = "disk"
        bench.fleet(2)
        bench.fault(f"e1:{DISK}#1:after:hang", f"e0:{DISK}#2:before:status500")
        for number in (1, 2, 3):
            bench.refit(number, deadline_s=20.0)
            seen.append(bench.kit.disk.folders())

    history = play(go)
    assert [r.ok for r in history.refits()] == [False, False, True]
    assert seen == [["refit-1"], [], []]  # in refit 2 the silent engine has loaded a later one


def test_a_folder_whose_reader_was_replaced_goes():
    seen = []

    def go(bench: Bench) -> None:
        bench.transport = "disk"
        bench.fleet(1)
        bench.fault(f"e0:{DISK}#1:after:die")
        bench.refit(1)
        seen.append(bench.kit.disk.folders())
        bench.engines[0].restart()
        bench.refit(2)
        seen.append(bench.kit.disk.folders())

    play(go)
    assert seen == [["refit-1"], []]
