"""Every judge finds held, violated and inconclusive where a hand-made history says so."""

from __future__ import annotations

import importlib

import pytest

from conformance.rules import FAMILIES, all_rules
from harness.history import History
from tests.conformance.judged import BREAKS, HOLDS, OPEN, Make
from tests.conformance.tape import Tape

for _family in (*FAMILIES, "coll_waits", "coll_engine", "saver", "nixl", "lora_engine", "lora_cache"):
    importlib.import_module(f"tests.conformance.judged_{_family}")

RULES = {rule.id: rule for rule in all_rules()}
TOLD = [(rule, make) for rule, makes in HOLDS.items() for make in makes]
BROKEN = [(rule, make, says) for rule, makes in BREAKS.items() for make, says in makes]
UNTOLD = [(rule, make) for rule, makes in OPEN.items() for make in makes]


def both(make: Make) -> list[History]:
    history = make().history
    return [history, history.without_core()]


@pytest.mark.parametrize(("rule", "make"), TOLD, ids=[f"{r}-{m.__name__}" for r, m in TOLD])
def test_holds(rule: str, make: Make) -> None:
    for history in both(make):
        verdict = RULES[rule].judge(history)
        assert verdict.status == "held", verdict
        assert verdict.exercised > 0


@pytest.mark.parametrize(("rule", "make", "says"), BROKEN, ids=[f"{r}-{m.__name__}" for r, m, _ in BROKEN])
def test_breaks(rule: str, make: Make, says: str) -> None:
    for history in both(make):
        verdict = RULES[rule].judge(history)
        assert verdict.status == "violated", verdict
        assert verdict.allowed
        assert verdict.where
        assert says in verdict.actual, verdict


@pytest.mark.parametrize(("rule", "make"), UNTOLD, ids=[f"{r}-{m.__name__}" for r, m in UNTOLD])
def test_leaves_open(rule: str, make: Make) -> None:
    assert RULES[rule].judge(make().history).status == "inconclusive"


@pytest.mark.parametrize("rule", RULES)
def test_an_empty_history_proves_nothing(rule: str) -> None:
    version = {"miles": "miles", "": "0.5.23"}.get(RULES[rule].versions, "0.5.23")
    assert RULES[rule].judge(Tape(version, tp=2).history).status in ("inconclusive", "unsupported")


@pytest.mark.parametrize("rule", RULES)
def test_every_judge_has_its_examples(rule: str) -> None:
    assert rule in HOLDS
    assert rule in BREAKS
