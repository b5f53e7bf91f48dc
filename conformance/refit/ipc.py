"""Refits through the parameter servers of a checkpoint engine: a call, and a socket and a buffer beside every rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.engine.ipc_server import BESIDE, GPU, NORM
from conformance.refit.disk import FROM_DISK
from conformance.refit.envelope import refit_twice
from conformance.refit.steps import prepare, question
from harness.bench import Bench
from harness.scenario import ScenarioList

Walk = Iterator[tuple[str, np.ndarray]]
scenarios = ScenarioList("refit/ipc", side="refit")
NEWS = ("IPC-1", "IPC-76", "IPC-77", "IPC-78")


@scenarios.add(*FROM_DISK, *NEWS, relation=GPU, explore=True, lanes=["fake"], options=BESIDE)
def two_refits_over_ipc(bench: Bench) -> None:
    """One engine."""
    bench.transport = "ipc"
    refit_twice(bench, 1)


@scenarios.add("IPC-77", "IPC-76", "VERIF-1", relation=GPU, lanes=["fake"], options={**BESIDE, "base_gpu_id": 2})
def beside_the_last_devices(bench: Bench) -> None:
    """The engine's GPUs are 2 and up; trainer ranks 0 and 1 have no worker beside them."""
    bench.transport = "ipc"
    bench.gpus = {"e0": tuple(range(2, 2 + bench.spec.tp))}
    handles = prepare(bench)
    bench.refit(1)
    question(bench, handles, "fresh-1")


@scenarios.add("IPC-79", "ERR-1", "PART-1", "VERIF-1", relation=GPU, lanes=["fake"], options=BESIDE, min_tp=2)
def one_rank_breaks_off(bench: Bench) -> None:
    """Rank 1 fails at its last tensor, when its worker has taken some; then nothing fails."""
    bench.transport = "ipc"
    handles = prepare(bench)
    last = list(bench.weights(2))[-1]
    assert bench.sut is not None
    bench.kit.spoil = lambda rank, walk: _breaks_off(walk, last) if rank == 1 else walk
    bench.refit(2)
    bench.kit.spoil = None
    bench.refit(1)
    question(bench, handles, "fresh-1")


@scenarios.add("VERIF-1", "IPC-79", relation=GPU, lanes=["fake"], options=BESIDE, min_tp=2)
def a_worker_that_fails_beside_rank_0(bench: Bench) -> None:
    """Rank 1 sends a tensor of another shape: rank 0's answer, which is the engine's, is a yes. Then a whole one."""
    bench.transport = "ipc"
    handles = prepare(bench)
    assert bench.sut is not None
    bench.kit.spoil = lambda rank, walk: ((n, t[:-1] if rank == 1 and n == NORM else t) for n, t in walk)
    bench.refit(2)
    bench.kit.spoil = None
    question(bench, handles, "fresh-2")
    bench.refit(1)
    question(bench, handles, "fresh-1")


def _breaks_off(walk: Walk, last: str) -> Walk:
    for name, tensor in walk:
        if name == last:
            raise OSError("the trainer's shard cannot be read")
        yield name, tensor
