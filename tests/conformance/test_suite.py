"""The suite is whole, and holds on the fake with the reference client."""

from __future__ import annotations

import pytest

from conformance.defects import DEFECTS
from harness.rules import Verdict, worst
from tests.conformance.running import VERSIONS, book, run, scenarios_of, version_of

RULES = [rule for rule in book().rules.values() if rule.id not in book().invariants]
_verdicts: dict[tuple[str, str], dict[str, Verdict]] = {}


def verdicts(scenario_id: str, version: str) -> dict[str, Verdict]:
    """What the rules of one scenario say; run once."""
    key = (scenario_id, version)
    if key not in _verdicts:
        scenario = book().scenarios[scenario_id]
        history = run(scenario, version)
        _verdicts[key] = {rule: book().rules[rule].judge(history) for rule in scenario.rules}
    return _verdicts[key]


def test_the_book_is_sound() -> None:
    assert book().defects() == []


def test_no_rule_needs_facts_of_the_core() -> None:
    for rule in RULES:
        assert not {need for need in rule.needs if need.startswith("core:")}, rule.id


def test_a_rule_without_a_black_box_judge_says_why() -> None:
    for rule in RULES:
        trainer = {need for need in rule.needs if need.startswith("trainer:")}
        assert bool(trainer) == bool(rule.black_box), rule.id


@pytest.mark.parametrize("rule", RULES, ids=[r.id for r in RULES])
def test_held_on_the_newest_version_that_it_speaks_of(rule: object) -> None:
    rule = book().rules[rule.id]  # type: ignore[attr-defined]
    version = version_of(rule)
    found = {s.id: verdicts(s.id, version)[rule.id] for s in scenarios_of(rule, version)}
    assert worst(found.values()).status == "held", found


def test_every_version_has_rules_of_its_own_or_shares_them() -> None:
    for version in VERSIONS:
        mine = [s for s in book().scenarios.values() if s.fits(version, 2, "fake")]
        assert len(mine) > 60, version


def test_the_table_of_defects_is_complete_and_names_rules_that_exist() -> None:
    assert list(DEFECTS) == [f"D{number:02}" for number in range(1, 42)]
    for name, defect in DEFECTS.items():
        assert bool(defect.rules) != bool(defect.unseen), name
        assert defect.rules <= book().rules.keys(), name


def test_every_rule_reads_as_one_sentence_with_sources() -> None:
    for rule in RULES:
        assert rule.text.endswith("."), rule.id
        assert rule.citations, rule.id
        assert len(rule.text) < 200, rule.id
