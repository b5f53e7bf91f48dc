"""The catalogue is whole: every defect has a mutant or a reason, every pattern finds its code, every mutant a rule."""

from __future__ import annotations

import re

import pytest

import conformance
from conformance.catalogue import absent, mutants
from conformance.plants import catalogue as plants
from harness.mutate.edits import Edits
from harness.mutate.program import Program

MUTANTS = mutants()
THIRTEEN = [
    "begin-after-the-transfer",
    "end-out-of-the-inner-finally",
    "continue-inside-the-try",
    "pause-deleted",
    "flush-failure-no-longer-raised",
    "kv-re-acquire-dropped",
    "routed-through-the-plain-transfer",
    "in-place-guard-removed",
    "aligner-prefetches",
    "only-the-first-dtype",
    "version-per-post",
    "physical-gpu-id",
    "payload-list-transposed",
]


def defects(origins: list[str]) -> set[str]:
    return {found for origin in origins for found in re.findall(r"\bD\d{2,3}\b", origin)}


def test_the_thirteen_of_nemo_rl_3519_come_first_and_by_name():
    assert [m.id for m in MUTANTS[:13]] == THIRTEEN
    assert all("NVIDIA-NeMo/RL#3519" in m.origin for m in MUTANTS[:13])


def test_every_defect_has_a_mutant_or_a_reason_and_no_reason_is_stale():
    made = defects([m.origin for m in MUTANTS]) | defects([p.origin for p in plants()])
    every = {f"D{n:02d}" for n in range(1, 121)}
    assert every - made - set(absent.DEFECTS) == set()
    mutated = defects([m.origin for m in MUTANTS])
    assert mutated & set(absent.DEFECTS) == set(), "has a mutant now: take it off the list"


def test_ids_are_unique_also_among_the_plants():
    ids = [m.id for m in MUTANTS] + [p.id for p in plants()]
    assert len(ids) == len(set(ids))


def test_every_mutant_names_one_rule_that_exists():
    rules = {rule.id for rule in conformance.suite().rules}
    assert [m.id for m in MUTANTS if len(m.breaks) != 1 or not m.breaks <= rules] == []


def test_every_rule_is_broken_by_a_mutant_or_plant():
    broken = {rule for m in MUTANTS for rule in m.breaks} | {rule for p in plants() for rule in p.breaks}
    assert {rule.id for rule in conformance.suite().rules} - broken == set()


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if isinstance(m.op, Edits)], ids=lambda m: m.id)
def test_its_pattern_still_finds_the_code(mutant):
    program = Program([])
    program.budget.stop()
    for place in mutant.op.by_target(mutant.target):
        module, _, qualname = place.partition(":")
        node = program.source(module).function(qualname).node
        mutant.op.mutated(node, mutant.target, place)
