"""Unequal engines, and trainer ranks without one."""

from __future__ import annotations

from conformance.refit.steps import VALIDATED, fleet, prepare, question
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/fleet", side="refit")
FAKE = "not yet: not run on real servers of different sizes"


@scenarios.add(
    "RANK-1", "RANK-2", "RANK-3", "RANK-4", "IPC-1", "ERR-2", relation=FAKE, lanes=["fake", "http"], min_tp=2
)
def unequal_engines(bench: Bench) -> None:
    """Two ranks and one rank: three trainer ranks, so that no tensor divides evenly among them."""
    handles = [bench.engine(), bench.engine(tp=1)]
    fleet(bench, handles, "fresh-1", "fresh-2")
    bench.note("ragged")
    for number in (1, 2):
        bench.refit(number)
        question(bench, handles, f"fresh-{number}")


@scenarios.add(
    "RANK-1", "IPC-1", "VERIF-1", relation="fake only: the order of GPUs shows on GPUs", lanes=["fake"], min_tp=2
)
def gpus_in_another_order(bench: Bench) -> None:
    """tp rank 0 is on the last GPU of the engine, the last rank on the first."""
    if bench.declared.transports == {"ipc"}:
        bench.unsupported("workers of this lane name their devices themselves, in order")
    bench.gpus = {"e0": tuple(reversed(range(bench.tp)))}
    handles = prepare(bench, 1)
    for number in (1, 2):
        bench.refit(number)
        question(bench, handles, f"fresh-{number}")


@scenarios.add("RANK-4", relation=VALIDATED, min_tp=2)
def a_rank_without_an_engine(bench: Bench) -> None:
    """It holds a shard all the same, and takes every step."""
    bench.spare_ranks = 1
    handles = prepare(bench, 1)
    bench.note("ragged")
    for number in (1, 2):
        bench.refit(number)
        question(bench, handles, f"fresh-{number}")
