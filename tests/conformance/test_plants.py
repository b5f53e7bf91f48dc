"""Every rule catches its plant, from calls, tokens and replies, and its plant is declared for it alone."""

from __future__ import annotations

import dataclasses

import pytest

from conformance.plants import catalogue
from harness.explore import plan
from harness.explore.rules import verdicts
from harness.history import History
from tests.conformance.running import book, run, scenarios_of, version_of

EXPLORED = [p for p in catalogue() if p.breaks & book().invariants]
PLANTS = [p for p in catalogue() if p not in EXPLORED]
# Swapped payloads of full tensors are harmless: only who made them tells. What lay in a payload is told by its trainer;
# without that, wrong answers break VERIF-1 and no name is known.
BY_PROVENANCE = {"payloads-reversed", "one-norm-left-out"}
OF_RELEASED_MEMORY = {"continued-before-the-pool-is-back", "given-up-and-called"}
CONTENT_FAMILIES = {"CACHE", "RANK", "NAME", "VER", "PART"}
OUR_OWN_MISTAKES = {"AttributeError", "TypeError", "NameError", "ImportError"}


def without_trainer(history: History) -> History:
    return dataclasses.replace(history, notes_=tuple(n for n in history.notes_ if n.source != "trainer"), _index={})


@pytest.mark.parametrize("plant", PLANTS, ids=[p.id for p in PLANTS])
def test_its_rule_catches_it(plant: object) -> None:
    plant = book().plants[plant.id]  # type: ignore[attr-defined]
    (rule_id,) = plant.breaks
    rule = book().rules[rule_id]
    version = version_of(rule)
    told = []
    with plant.apply():
        for scenario in scenarios_of(rule, version):
            history = run(scenario, version)
            assert not OUR_OWN_MISTAKES & {refit.error_type for refit in history.refits()}, "the plant itself is broken"
            verdict = rule.judge(history)
            told.append((scenario.id, verdict))
            if verdict.status == "violated":
                break
    assert verdict.status == "violated", told
    if rule.family in CONTENT_FAMILIES:
        blind = history.without_core()
        assert rule.judge(blind).status == "violated"
        if plant.id not in BY_PROVENANCE and not any(need.startswith("trainer:") for need in rule.needs):
            assert rule.judge(without_trainer(blind)).status == "violated"


@pytest.mark.parametrize("plant", EXPLORED, ids=[p.id for p in EXPLORED])
def test_exploration_catches_it_and_no_run_without_a_fault_does(plant: object) -> None:
    plant = book().plants[plant.id]  # type: ignore[attr-defined]
    (rule_id,) = plant.breaks
    scenarios = [s for s in scenarios_of(book().rules[rule_id], "0.5.23") if "fleet" not in s.id]
    scenarios.sort(key=lambda s: ("released" in s.id) != (plant.id in OF_RELEASED_MEMORY))
    with plant.apply():
        for scenario in scenarios:
            recorded = run(scenario, "0.5.23")
            assert verdicts(recorded, recorded)[rule_id].status == "inconclusive"
            for faults in plan(recorded):
                history = run(scenario, "0.5.23", faults)
                assert not OUR_OWN_MISTAKES & {r.error_type for r in history.refits()}, "the plant itself is broken"
                if verdicts(history, recorded)[rule_id].status == "violated":
                    return
    raise AssertionError(f"no fault of {len(scenarios)} scenarios brings {plant.id} out")


def test_every_rule_has_a_plant_that_is_declared_for_it_alone() -> None:
    for rule in book().rules.values():
        assert any(plant.breaks == {rule.id} for plant in book().plants_of(rule.id)), rule.id


def test_a_plant_leaves_nothing_behind() -> None:
    rule = book().rules["VERIF-2"]
    scenario = next(s for s in scenarios_of(rule, "0.5.23") if s.id.endswith("llama"))
    assert rule.judge(run(scenario, "0.5.23")).status == "held"  # its steps are remembered from now on
    with book().plants["blind-canary"].apply():
        assert rule.judge(run(scenario, "0.5.23")).status == "violated"
    assert rule.judge(run(scenario, "0.5.23")).status == "held"
