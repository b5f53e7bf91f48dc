"""A set that arrives in part, and the complete one that heals it."""

from __future__ import annotations

from conformance.engine.steps import VALIDATED, ask, know, push
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/part")


@scenarios.add("PART-51", "PART-52", relation=VALIDATED)
def half_then_whole(bench: Bench) -> None:
    """The first half stays; the whole set heals."""
    e = bench.e0
    know(bench, e, "torn", "healed")
    weights = bench.weights(1, e)
    first = dict(list(weights.items())[: len(weights) // 2])
    push(bench, e, "first-half", first)
    ask(bench, e, "torn")
    push(bench, e, "heal", weights, seeds=[1])
    ask(bench, e, "healed")
