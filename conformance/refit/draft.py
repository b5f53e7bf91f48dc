"""Refits of engines with a draft model: the policy has a draft of its own, which is trained along."""

from __future__ import annotations

from conformance.drafts import LAUNCH, check, draft, expect
from conformance.engine.draft import READ
from conformance.refit.steps import fleet
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/draft", side="refit")


@scenarios.add("DRAFT-1", relation=READ, lanes=["fake"], versions=">=0.5.17 || miles", options=LAUNCH)
def two_refits_with_a_draft(bench: Bench) -> None:
    """Target and draft in one state; then the memory goes, and a third brings both back."""
    handles = bench.fleet(1)
    fleet(bench, handles)
    for number in (1, 2):
        bench.refit(number, state={**bench.weights(number, handles[0]), **draft(handles[0], number)})
        bench.barrier("after the refit")
        expect(bench, handles[0], number)
        check(handles[0])
