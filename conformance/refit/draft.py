"""Refits of engines with a draft model: the policy has a draft of its own, which is trained along."""

from __future__ import annotations

from conformance.drafts import LAUNCH, check, draft, expect
from conformance.engine.draft import READ
from conformance.refit.steps import fleet, give_memory
from harness.bench import Bench
from harness.lanes.base import EngineHandle
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/draft", side="refit")


@scenarios.add("DRAFT-1", relation=READ, lanes=["fake"], versions=">=0.5.17 || miles", options=LAUNCH)
def two_refits_with_a_draft(bench: Bench) -> None:
    """Target and draft in one state."""
    (e,) = bench.fleet(1)
    fleet(bench, [e])
    for number in (1, 2):
        _push(bench, e, number)


@scenarios.add(
    "DRAFT-1",
    relation=READ,
    lanes=["fake"],
    versions=">=0.5.17 || miles",
    options={**LAUNCH, "enable_memory_saver": True},
)
def a_draft_whose_memory_the_trainer_had(bench: Bench) -> None:
    """What was released comes back as zeros, of both."""
    (e,) = bench.fleet(1)
    fleet(bench, [e])
    give_memory(bench)
    _push(bench, e, 1)


def _push(bench: Bench, e: EngineHandle, seed: int) -> None:
    """A refit of both, and what the draft is to be."""
    bench.refit(seed, state={**bench.weights(seed, e), **draft(e, seed)})
    bench.barrier("after the refit")
    expect(bench, e, seed)
    check(e)
