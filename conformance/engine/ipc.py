"""Payloads whose producer did not keep what it exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from conformance.engine.steps import VALIDATED, ask, know, push
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/ipc")
Named = Mapping[str, np.ndarray]


def _exports(kit: Any, bench: Bench, weights: Named) -> Sequence[Any]:
    """One whole set per rank of e0, made by the trainer rank of the same number."""
    return [kit.export(rank, list(weights.items()), (("e0", rank),)) for rank in range(bench.tp)]


@scenarios.add("IPC-51", "ERR-51", relation=VALIDATED, lanes=["fake", "http", "sglang-cpu"], fatal=True)
def a_producer_that_is_gone(bench: Bench) -> None:
    """Exported, then the trainer's processes end, then sent."""
    e = bench.e0
    kit = bench.lane.trainer(bench.tp)
    made = _exports(kit, bench, bench.weights(1, e))
    for rank in range(bench.tp):
        kit.lose_rank(rank)
    push(bench, e, "gone-producer", payloads=[export.payload for export in made])
    e.call("model_info", method="GET")


@scenarios.add("IPC-52", relation="fake only: two processes that share one GPU's memory are needed", lanes=["fake"])
def memory_that_was_used_again(bench: Bench) -> None:
    """Exported, released, used for another set of the same size; the first payload is sent."""
    e = bench.e0
    know(bench, e, "again", seeds=(0, 1, 2))
    kit = bench.lane.trainer(bench.tp)
    first = _exports(kit, bench, bench.weights(1, e))
    for export in first:
        export.release()
    second = _exports(kit, bench, bench.weights(2, e))
    push(bench, e, "used-again", seeds=[2], payloads=[export.payload for export in first])
    ask(bench, e, "again")
    for export in second:
        export.release()
