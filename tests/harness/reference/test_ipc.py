"""Refits over IPC, against the workers of a fake engine: one call, a line beside every rank, and what goes wrong."""

from __future__ import annotations

import pytest

from harness.bench import Bench
from tests.harness.reference.test_distributed import play

IPC = "update_weights_from_ipc"
BESIDE = {"device": "cuda", "checkpoint_engine": "0.4.2"}


def beside(bench: Bench, engines: int = 1, tp: int = 2, **options: object) -> None:
    bench.transport = "ipc"
    for n in range(engines):
        bench.engine(tp=tp, **{**BESIDE, "base_gpu_id": n * tp, **options})
    assert bench.sut is not None


def kinds(history, address: str) -> list[str]:
    return [note.get("kind") for note in history.trainer("ipc_ask", address=address)]


def test_a_refit_is_one_call_outside_any_session_and_leaves_no_buffer():
    def go(bench: Bench) -> None:
        beside(bench)
        bench.refit(1)
        bench.refit(2)
        assert bench.kit.live_exports() == 0

    history = play(go)
    assert [r.ok for r in history.refits()] == [True, True]
    assert [c.op for c in history.calls()] == [
        "model_info", *["pause_generation", "flush_cache", IPC, "continue_generation"] * 2,
    ]  # fmt: skip
    first, second = history.calls(IPC)
    assert (first.arg("weight_version"), second.arg("weight_version")) == ("v1", "v2")
    assert first.arg("flush_cache") is False
    handles = first.arg("zmq_handles")
    assert list(handles) == ["GPU-00000000-0000-4000-8000-000000000000", "GPU-00000001-0000-4000-8000-000000000001"]
    assert list(handles.values()) == ["ipc://@refit-1-e0-0.sock", "ipc://@refit-1-e0-1.sock"]
    assert not set(handles.values()) & set(second.arg("zmq_handles").values()), "who was told late comes to nobody"
    assert kinds(history, "ipc://@refit-1-e0-1.sock") == ["buffer", "weights", "weights", "weights", "none", "none"]
    halves = [n.get("spans")[0][0] for n in history.trainer("ipc_ask", address="ipc://@refit-1-e0-1.sock")[1:4]]
    assert halves[0] == halves[2] == 0 < halves[1]


def test_every_engine_gets_the_handles_of_its_own_devices():
    def go(bench: Bench) -> None:
        beside(bench, engines=2)
        bench.refit(1)

    history = play(go)
    assert history.refits()[0].ok
    for call in history.calls(IPC):
        assert all(f"-{call.engine}-" in address for address in call.arg("zmq_handles").values())
    assert {n.get("own") for n in history.trainer("open")} == {True}


@pytest.mark.parametrize("fault", ["before:status400", "before:drop", "before:die", "before:success_false"])
def test_a_call_that_ends_before_a_worker_came_is_not_waited_for(fault: str):
    def go(bench: Bench) -> None:
        beside(bench)
        bench.fault(f"e0:{IPC}#1:{fault}")
        bench.refit(1, deadline_s=60.0)
        assert bench.kit.live_exports() == 0

    (refit,) = play(go).refits()
    assert refit.error.startswith("transfer failed on e0")
    assert refit.end_t - refit.t < 20.0


def test_an_engine_without_the_package_says_so():
    def go(bench: Bench) -> None:
        beside(bench, checkpoint_engine="")
        bench.refit(1)

    (refit,) = play(go).refits()
    assert "checkpoint-engine is not installed" in refit.error


def test_a_call_that_never_arrives_is_waited_for_until_the_deadline():
    def go(bench: Bench) -> None:
        beside(bench)
        bench.fault(f"e0:{IPC}#1:before:hang")
        bench.refit(1, deadline_s=20.0)
        bench.refit(2)

    first, second = play(go).refits()
    assert first.error.startswith("transfer failed on e0: timeout")
    assert 15.0 <= first.end_t - first.t <= 20.0
    assert second.ok


def test_what_a_worker_met_is_raised_although_rank_0_said_yes():
    """Of a rank beside rank 0 the engine's answer says nothing."""

    def go(bench: Bench) -> None:
        beside(bench)
        ranks = bench.lane.world.engines["e0"].core.scheduler.ranks
        ranks[1].load = lambda named: (_ for _ in ()).throw(RuntimeError("out of memory"))
        bench.refit(1)
        del ranks[1].load
        bench.refit(2)

    first, second = play(go).refits()
    assert "out of memory" in first.error
    assert "Some workers" not in first.error
    assert second.ok


def test_a_rank_that_fails_lets_every_worker_go():
    def go(bench: Bench) -> None:
        beside(bench)
        last = list(bench.weights(1))[-1]
        bench.kit.spoil = lambda rank, walk: _breaks_off(walk, last) if rank == 1 else walk
        bench.refit(1)
        bench.kit.spoil = None
        bench.refit(2)

    history = play(go)
    first, second = history.refits()
    assert (first.error_type, first.error) == ("OSError", "no shard")
    assert [kinds(history, f"ipc://@refit-1-e0-{rank}.sock")[-1] for rank in (0, 1)] == ["stop", "stop"]
    assert "OSError: no shard" in history.calls(IPC)[0].message
    assert second.ok


def _breaks_off(walk, last):
    for name, tensor in walk:
        if name == last:
            raise OSError("no shard")
        yield name, tensor
