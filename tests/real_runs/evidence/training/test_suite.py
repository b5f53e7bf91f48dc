"""The rules of evidence in the book: each is held by the validator, and each plant and mutant of it is noticed."""

import re

import pytest

from harness.mutate.program import Program
from harness.runner import Runner
from harness.settings import Settings
from harness.suites import Book
from real_runs.evidence.training.mutants import mutants
from real_runs.evidence.training.plants import catalogue
from real_runs.evidence.training.suite import suite


@pytest.fixture(scope="module")
def book():
    found = Book()
    found.add_suite(suite())
    found.add_plants((*catalogue(), *mutants()))
    return found


def judged(book, rule):
    runner = Runner(Settings(versions=("0.5.23",), tp=1, lane="fake"), book)
    try:
        (scenario,) = book.scenarios_of(rule)
        return book.rules[rule].judge(runner.run_once(scenario, "0.5.23", "", ()))
    finally:
        runner.close()


def test_the_book_is_sound_and_held(book):
    assert book.defects() == []
    for rule in book.rules:
        verdict = judged(book, rule)
        assert (verdict.status, verdict.exercised >= 4) == ("held", True), (rule, verdict)


@pytest.mark.parametrize("plant", catalogue(), ids=lambda plant: plant.id)
def test_a_plant_is_caught_by_its_rule(book, plant):
    with plant.apply():
        verdict = judged(book, next(iter(plant.breaks)))

    assert verdict.status == "violated"
    assert verdict.allowed


def test_a_validator_that_refuses_everything_is_caught_too(book, monkeypatch):
    monkeypatch.setattr("real_runs.evidence.training.log_checks.paired", lambda run: iter(["no"]))

    assert judged(book, "EVID-2").actual == "refused: no"


def test_every_rule_has_a_plant_and_a_mutant(book):
    assert all(book.plants_of(rule) and book.mutants_of(rule) for rule in book.rules)


def test_every_pattern_still_finds_its_code():
    program = Program([])
    program.budget.stop()
    for mutant in mutants():
        for place in mutant.op.by_target(mutant.target):
            module, _, qualname = place.partition(":")
            mutant.op.mutated(program.source(module).function(qualname).node, mutant.target, place)


def test_the_defects_of_evidence_are_rules():
    found = {word for one in (*catalogue(), *mutants()) for word in re.findall(r"D\d{2,3}", one.origin)}

    assert {"D107", "D108", "D109", "D110", "D111", "D112", "D119", "D120"} <= found
