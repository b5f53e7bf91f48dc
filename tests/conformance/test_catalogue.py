"""The catalogue is whole: every defect has a mutant or a reason, every pattern finds its code, every mutant a rule."""

from __future__ import annotations

import re

import pytest

import conformance
from conformance.catalogue import absent, mutants
from conformance.catalogue.reports import REPORTS
from conformance.plants import catalogue as plants
from harness.explore.rules import INVARIANTS
from harness.mutate.edits import Edits
from harness.mutate.program import Program
from real_runs.evidence.training import mutants as evidence_mutants
from real_runs.evidence.training import plants as evidence_plants
from real_runs.evidence.training.checks import CHECKS

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


def origins() -> list[str]:
    return [m.origin for m in MUTANTS] + [p.origin for p in plants()]


def test_every_defect_has_a_mutant_or_a_reason_and_no_reason_is_stale():
    made = defects(origins())
    of_evidence = (*evidence_mutants.mutants(), *evidence_plants.catalogue(), *CHECKS)
    made |= defects([" ".join(getattr(one, "citations", ())) or one.origin for one in of_evidence])
    every = {f"D{n:02d}" for n in range(1, 121)}
    assert every - made - set(absent.DEFECTS) == set()
    assert made & set(absent.DEFECTS) == set(), "has a mutant now: take it off the list"
    assert set(absent.DEFECTS) <= every


def breaking(link: str) -> set[str]:
    """Rules that a mutant or plant with this origin breaks."""
    named = re.compile(rf"{re.escape(link)}(?!\d)")
    return {rule for one in (*MUTANTS, *plants()) if named.search(one.origin) for rule in one.breaks}


@pytest.mark.parametrize("report", REPORTS, ids=lambda r: f"{r.link}-{r.contract}")
def test_every_report_has_a_mutant_that_breaks_its_rule_or_names_the_part_that_is_missing(report):
    assert bool(report.rules) != bool(report.missing)
    if report.missing:
        assert re.match(r"issue \d: \w", report.missing)
        own = {r for r in breaking(report.link) if r == report.contract}
        assert own == set(), "has a mutant now: name its rules"
    else:
        assert report.rules & breaking(report.link), report


def test_reports_name_rules_that_exist_and_the_contract_itself_where_there_is_one():
    rules = {rule.id for rule in conformance.suite().rules}
    for report in REPORTS:
        assert report.rules <= rules, report
        if report.contract in rules and report.rules:
            assert report.contract in report.rules or report.contract in ("MEM-1",), report


def test_no_report_and_no_promise_of_it_is_left_out():
    assert len(REPORTS) == 78
    assert len({r.link for r in REPORTS}) == 62
    assert len({(r.link, r.contract) for r in REPORTS}) == 78
    others = {link for origin in origins() for link in re.findall(r"[\w.-]+/[\w.-]+#\d+", origin)}
    assert others - {r.link for r in REPORTS} <= {"ai-dynamo/dynamo#6967", "sgl-project/sglang#9379"}


LENIENT_FAKES = {
    "session check removed": "session-check-removed",
    "assert turned into 400": "asserts-turned-into-400",
    "fresh tensors where a buffer should be recycled": "fresh-memory-where-it-is-recycled",
    "poison left out": "poison-left-out",
    "payload index ignored": "payload-index-ignored",
    "flush that does not flush": "flush-that-does-not-flush",
    "released memory kept": "released-memory-kept",
    "version recorded early": "version-recorded-early",
    "non-idempotent finalise made idempotent": "finalise-made-idempotent",
    "unpickler opened": "unpickler-opened",
    "death turned into 500": "death-turned-into-500",
}


@pytest.mark.parametrize("id_", LENIENT_FAKES.values(), ids=list(LENIENT_FAKES))
def test_every_kind_of_lenient_fake_is_a_mutant_or_waits_for_its_part(id_):
    assert (id_ in {m.id for m in MUTANTS}) != (id_ in absent.LENIENT)


def test_ids_are_unique_also_among_the_plants():
    ids = [m.id for m in MUTANTS] + [p.id for p in plants()]
    assert len(ids) == len(set(ids))


def test_every_mutant_names_one_rule_that_exists():
    rules = {rule.id for rule in conformance.suite().rules} | {rule.id for rule in INVARIANTS}
    assert [m.id for m in MUTANTS if len(m.breaks) != 1 or not m.breaks <= rules] == []


def test_every_rule_is_broken_by_a_mutant_or_plant():
    broken = {rule for m in MUTANTS for rule in m.breaks} | {rule for p in plants() for rule in p.breaks}
    assert {rule.id for rule in (*conformance.suite().rules, *INVARIANTS)} - broken == set()


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if isinstance(m.op, Edits)], ids=lambda m: m.id)
def test_its_pattern_still_finds_the_code(mutant):
    program = Program([])
    program.budget.stop()
    for place in mutant.op.by_target(mutant.target):
        module, _, qualname = place.partition(":")
        node = program.source(module).function(qualname).node
        mutant.op.mutated(node, mutant.target, place)
