"""Refits through a checkpoint engine: a receiver for every engine rank, a stream from a trainer rank to each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.refit.envelope import ALWAYS, FEW
from conformance.refit.state import wide
from conformance.refit.steps import prepare, question, restart, restart_dead
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/nixl", side="refit")
AGENTS = "fake only: its agents are the trainer kit's"
UPDATE = "update_weights_from_tensor"
NOT_HERE = frozenset(
    {
        "CACHE-1",
        "CACHE-3",
        "CACHE-4",
        "LIVE-2",
        "LOCK-2",
        "MEM-1",
        "MEM-2",
        "PAUSE-1",
        "PAUSE-2",
        "PAUSE-3",
        "PAUSE-6",
        "VER-1",
    }
)
STREAMED = tuple(rule for rule in ALWAYS if rule not in NOT_HERE)
NEWS = ("IPC-71", "IPC-73", "NAME-74", "RANK-71")
Walk = Iterator[tuple[str, np.ndarray]]


def _prepare(bench: Bench, engines: int = 1) -> Any:
    """A trainer rank for every engine rank; the bench gives two by itself."""
    bench.transport = "checkpoint-engine"
    bench.spare_ranks = max(0, engines * bench.spec.tp - 2)
    return prepare(bench, engines)


@scenarios.add(*STREAMED, *NEWS, relation=AGENTS, explore=True, lanes=["fake"])
def two_refits_through_receivers(bench: Bench) -> None:
    """One engine, asked before, between and after."""
    handles = _prepare(bench)
    question(bench, handles, "fresh-3", n=FEW)
    for number in (1, 2):
        bench.refit(number)
        question(bench, handles, f"fresh-{number}", n=FEW)
        restart_dead(bench, handles)


@scenarios.add("IPC-72", "IPC-75", "VERIF-1", relation=AGENTS, lanes=["fake", "http"])
def an_engine_comes_back(bench: Bench) -> None:
    """Restarted between two refits: its receivers went with it."""
    handles = _prepare(bench)
    for number in (1, 2):
        bench.refit(number)
        question(bench, handles, f"fresh-{number}")
        if number == 1:
            restart(bench, handles[0])
    bench.close_sut()


@scenarios.add("RANK-72", "RANK-1", "IPC-71", relation=AGENTS, lanes=["fake"])
def on_the_last_devices(bench: Bench) -> None:
    """The engine's process sees GPUs 2 and up, and counts them from 0."""
    first = 2
    bench.gpus = {"e0": tuple(range(first, first + bench.spec.tp))}
    handles = _prepare(bench)
    bench.refit(1)
    question(bench, handles, "fresh-1")


@scenarios.add("NAME-72", "NAME-71", relation=AGENTS, lanes=["fake"])
def streams_without_a_tensor(bench: Bench) -> None:
    """Every rank's export is empty; then it is whole."""
    handles = _prepare(bench)
    _spoiled(bench, 0, "nothing", lambda rank, walk: (item for item in walk if item[0] == ""))
    bench.refit(2)
    question(bench, handles, "fresh-1")


@scenarios.add("NAME-73", "NAME-71", relation=AGENTS, lanes=["fake"], min_tp=2)
def streams_that_differ(bench: Bench) -> None:
    """Rank 1 ends early, has another name, has another dtype; then all have the same."""
    handles = _prepare(bench)
    last = list(bench.weights(1))[-1]
    _spoiled(bench, 0, "uneven", lambda rank, walk: (i for i in walk if not (rank == 1 and i[0] == last)))
    _spoiled(bench, 1, "renamed", lambda rank, walk: ((n + "_" * (rank == 1 and n == last), t) for n, t in walk))
    _spoiled(
        bench, 2, "retyped", lambda rank, walk: ((n, _wider(t) if rank == 1 and n == last else t) for n, t in walk)
    )
    bench.refit(2)
    question(bench, handles, "fresh-1")


def _wider(tensor: np.ndarray) -> np.ndarray:
    return np.asarray(tensor, dtype=np.float32)


def _spoiled(bench: Bench, index: int, kind: str, spoil: Any) -> None:
    bench.kit.spoil = spoil
    bench.note("spoiled", index=index, kind=kind)
    bench.refit(1)
    bench.kit.spoil = None


@scenarios.add("IPC-74", "NAME-71", relation=AGENTS, lanes=["fake"])
def no_network_transport(bench: Bench) -> None:
    """UCX is told to use shared memory alone; then it may use all it has."""
    handles = _prepare(bench)
    env = bench.kit.fabric.env
    env["UCX_TLS"] = "sm"
    bench.note("no_network", index=0)
    bench.refit(1)
    del env["UCX_TLS"]
    bench.refit(2)
    question(bench, handles, "fresh-1")


@scenarios.add("NAME-1", "NAME-74", "RANK-4", "RANK-71", "IPC-71", relation=AGENTS, lanes=["fake", "http"])
def mixed_dtypes_and_a_rank_without_a_receiver(bench: Bench) -> None:
    """Norms in float32 among bfloat16, then all in float32, from one trainer rank more than the engine has."""
    bench.transport = "checkpoint-engine"
    bench.spare_ranks = max(1, bench.spec.tp - 1)
    handles = prepare(bench)
    bench.note("ragged")
    one, two = bench.weights(1), bench.weights(2)
    norms_wide = {n: _wider(t) if "norm" in n else t for n, t in one.items()}
    for index, (seed, state, kind) in enumerate([(1, norms_wide, "mixed"), (2, wide(two), "float32")]):
        bench.note("state", index=index, kinds=[kind])
        bench.refit(seed, state=state)
        question(bench, handles, f"fresh-{seed}")


@scenarios.add("ERR-1", "RANK-3", "IPC-1", "IPC-73", relation=AGENTS, lanes=["fake"])
def one_of_two_refuses_a_batch(bench: Bench) -> None:
    """Its stream ends there, the other engine's goes on; then a refit of both."""
    handles = _prepare(bench, 2)
    bench.fault(f"e1:{UPDATE}#2:before:status500")
    bench.refit(1)
    restart_dead(bench, handles)
    bench.refit(2)
    question(bench, handles, "fresh-1")
