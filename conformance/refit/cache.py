"""Warm prompts and running requests around a refit."""

from __future__ import annotations

from conformance.engine.steps import BUCKET
from conformance.refit.steps import NOT_RUN, ask, prepare, question
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/cache", side="refit")


@scenarios.add("CACHE-4", "VERIF-1", relation=NOT_RUN)
def a_warm_prompt(bench: Bench) -> None:
    """Warmed before each refit, asked after it."""
    (e,) = prepare(bench, 1, "warm-1", "warm-2")
    for number in (1, 2):
        ask(bench, e, "warm-1")
        ask(bench, e, "warm-2")
        bench.refit(number)
        question(bench, [e], "warm-1", "warm-2", f"fresh-{number}")


@scenarios.add("PAUSE-3", "PAUSE-5", "CACHE-3", "VER-1", relation=NOT_RUN)
def requests_that_run(bench: Bench) -> None:
    """Three requests are under way when the refit begins, and one arrives during it."""
    (e,) = prepare(bench, 1)
    running = [bench.traffic(e, f"running-{n}", n=200) for n in range(3)]
    e.sleep(0.1)
    bench.refit(1)
    for request in running:
        request.result(60.0)
    question(bench, [e], "fresh-1")


@scenarios.add("PART-71", "PAUSE-3", "VERIF-1", relation=NOT_RUN)
def requests_that_arrive(bench: Bench) -> None:
    """One every twentieth of a second, from the moment at which the refit begins; its second bucket takes its time."""
    labels = [f"meanwhile-{n}" for n in range(20)]
    (e,) = prepare(bench, 1, *labels)
    requests = [bench.traffic(e, label, n=2, after_s=0.05 * n) for n, label in enumerate(labels)]
    bench.fault(f"e0:{BUCKET}#2:before:delay=0.5")
    bench.refit(1)
    for request in requests:
        request.result(60.0)
    question(bench, [e], "fresh-1")
