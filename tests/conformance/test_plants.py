"""Every rule catches its plant, from calls, tokens and replies, and its plant is declared for it alone."""

from __future__ import annotations

import dataclasses

import pytest

from conformance.plants import catalogue
from harness.history import History
from tests.conformance.running import book, run, scenarios_of, version_of

PLANTS = catalogue()
# Swapped payloads of full tensors are harmless: only who made them tells.
BY_PROVENANCE = {"payloads-reversed"}
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
        if plant.id not in BY_PROVENANCE:
            assert rule.judge(without_trainer(blind)).status == "violated"


def test_every_rule_has_a_plant_that_is_declared_for_it_alone() -> None:
    for rule in book().rules.values():
        assert any(plant.breaks == {rule.id} for plant in book().plants_of(rule.id)), rule.id


def test_a_plant_leaves_nothing_behind() -> None:
    rule = book().rules["VERIF-2"]
    scenario = next(s for s in scenarios_of(rule, "0.5.23") if s.id.endswith("llama"))
    with book().plants["blind-canary"].apply():
        assert rule.judge(run(scenario, "0.5.23")).status == "violated"
    assert rule.judge(run(scenario, "0.5.23")).status == "held"
