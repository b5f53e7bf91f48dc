"""Payload lists that are not what the ranks expect. Only told apart with two ranks or more."""

from __future__ import annotations

from conformance.engine.steps import VALIDATED, ask, know, load, push
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/rank")


@scenarios.add("RANK-51", "ERR-51", relation=VALIDATED, fatal=True, min_tp=2)
def a_payload_short(bench: Bench) -> None:
    """One payload less than there are ranks."""
    e = bench.e0
    push(bench, e, "short-list", payloads=bench.payloads(e, 1)[:-1])
    e.call("model_info", method="GET")


@scenarios.add("RANK-52", relation=VALIDATED, min_tp=2)
def a_payload_too_many(bench: Bench) -> None:
    """The last one holds other weights."""
    e = bench.e0
    know(bench, e, "long")
    more = [bench.weights(1, e)] * bench.tp + [bench.weights(0, e)]
    push(bench, e, "long-list", more, seeds=[1])
    ask(bench, e, "long")


@scenarios.add("RANK-53", relation=VALIDATED, min_tp=2)
def ranks_from_two_sets(bench: Bench) -> None:
    """The last rank stays with the old weights."""
    e = bench.e0
    know(bench, e, "torn")
    torn = [bench.weights(1, e)] * (bench.tp - 1) + [bench.weights(0, e)]
    push(bench, e, "torn-ranks", torn)
    ask(bench, e, "torn")
    load(bench, e, 0)


@scenarios.add("RANK-54", relation=VALIDATED, min_tp=2)
def payloads_swapped(bench: Bench) -> None:
    """In reverse order."""
    e = bench.e0
    know(bench, e, "swapped")
    push(bench, e, "swapped", payloads=bench.payloads(e, 1)[::-1], seeds=[1])
    ask(bench, e, "swapped")
