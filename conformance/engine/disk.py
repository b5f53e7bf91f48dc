"""update_weights_from_disk: whole folders, parts of one, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from conformance.engine.steps import VALIDATED, ask, begin, end, know, load
from fakes.outcome import Outcome
from fakes.trainer.disk import SharedDisk
from harness.bench import Bench
from harness.lanes.base import EngineHandle
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/disk")
UPDATE = "update_weights_from_disk"
RACE = "fake only: which rank of a real engine is late cannot be chosen"
NORM = "model.norm.weight"


@contextmanager
def shared(bench: Bench) -> Iterator[SharedDisk]:
    """A disk that trainer and engine share, for one scenario."""
    disk = SharedDisk(bench.record)
    try:
        yield disk
    finally:
        disk.close()


def read(
    bench: Bench,
    disk: SharedDisk,
    engine: EngineHandle,
    kind: str,
    named: Mapping[str, np.ndarray],
    *,
    seeds: Sequence[int] = (),
) -> Outcome:
    """Let the engine load a folder with these tensors, under the name that the judges know it by.

    Rank 0 alone answers, and no barrier makes it wait for the others (managers/scheduler_components/
    weight_updater.py:138@0.5.23): they may still be reading. What succeeds is followed by a generation, which no rank
    is left out of, before the folder goes.
    """
    folder = disk.create(kind)
    if named:
        folder.write(list(named.items()))
    path = str(folder.publish())
    bench.note("push", engine, kind=kind, seeds=list(seeds))
    return engine.call(UPDATE, {"model_path": path, "weight_version": kind})


@scenarios.add("DISK-51", relation=VALIDATED)
def a_whole_folder(bench: Bench) -> None:
    """Outside any session."""
    e = bench.e0
    know(bench, e, "disk")
    with shared(bench) as disk:
        read(bench, disk, e, "disk-whole", bench.weights(1, e), seeds=[1])
        e.call("model_info", method="GET")
        ask(bench, e, "disk")
    load(bench, e, 0)


@scenarios.add("DISK-52", relation=VALIDATED)
def a_path_that_is_not_there(bench: Bench) -> None:
    """Nothing changes, and model_info keeps its path."""
    e = bench.e0
    ask(bench, e, "disk")
    bench.note("push", e, kind="disk-missing", seeds=[])
    e.call(UPDATE, {"model_path": "/nonexistent"})
    e.call("model_info", method="GET")
    ask(bench, e, "disk")


@scenarios.add("DISK-53", relation=VALIDATED, fatal=True)
def a_tensor_of_another_shape(bench: Bench) -> None:
    """The load fails, and so does what is called a rollback."""
    e = bench.e0
    weights = bench.weights(1, e)
    with shared(bench) as disk:
        read(bench, disk, e, "disk-fails", {**weights, NORM: weights[NORM][: len(weights[NORM]) // 2]})


@scenarios.add("DISK-54", relation=VALIDATED)
def a_part_of_a_set(bench: Bench) -> None:
    """A delta: what is not in the folder stays."""
    e = bench.e0
    know(bench, e, "delta")
    half = dict(list(bench.weights(1, e).items())[::2])
    with shared(bench) as disk:
        read(bench, disk, e, "disk-part", half)
        ask(bench, e, "delta")
    load(bench, e, 0)


@scenarios.add("DISK-55", relation=VALIDATED, versions=">=0.5.21")
def inside_a_session(bench: Bench) -> None:
    """It is taken, and the session is still open afterwards."""
    e = bench.e0
    begin(bench, e)
    with shared(bench) as disk:
        read(bench, disk, e, "disk-inside", bench.weights(0, e))
        bench.note("asked", e, kind="end-after-disk")
        end(bench, e)
        ask(bench, e, "inside")


@scenarios.add("DISK-56", relation=VALIDATED)
def a_folder_without_weights(bench: Bench) -> None:
    """An empty one."""
    with shared(bench) as disk:
        read(bench, disk, bench.e0, "disk-empty", {})


@scenarios.add("DISK-57", relation=RACE, lanes=["fake"], min_tp=2, fatal=True)
def a_folder_that_goes_at_the_answer(bench: Bench) -> None:
    """Rank 0 has read it."""
    e = bench.e0
    know(bench, e, "early")
    with shared(bench) as disk:
        read(bench, disk, e, "disk-early", bench.weights(1, e))
    ask(bench, e, "early")
