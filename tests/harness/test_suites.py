from __future__ import annotations

import pytest

from harness.errors import BrokenBook, UsageError
from harness.explore.rules import INVARIANTS
from harness.lanes.loader import load_lane
from harness.scenario import Scenario, ScenarioList
from harness.suites import Plant, Suite, load_book
from harness.sut.loader import load_sut
from harness.versions import version_matches
from tests.harness.toys import ToyLane, ToySut, book, flush_answered, flushes, rule


def suite(rules=("X-1",), names=("X-1",), relation="fake only: a toy", versions=""):
    scenario = Scenario("s/x", frozenset(names), flushes, relation, versions=versions)
    return Suite("s", tuple(rule(r, flush_answered) for r in rules), (scenario,))


def test_a_sound_book_has_no_defects():
    assert book(suite()).defects() == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (suite(rules=("X-1", "X-2")), "rule X-2 has no scenario"),
        (suite(names=()), "scenario s/x names no rule"),
        (suite(names=("X-1", "X-9")), "scenario s/x names rule X-9, which does not exist"),
        (suite(versions=">=banana"), "scenario s/x: '>=banana' is neither"),
    ],
)
def test_rules_and_scenarios_must_fit_together(found, told):
    assert any(told in defect for defect in book(found).defects())


@pytest.mark.parametrize("relation", ["validated: 0.5.23 2026-11-30", "not yet: too slow", "fake only: no GPU"])
def test_a_relation_to_the_real_engine_is_one_of_three(relation):
    assert book(suite(relation=relation)).defects() == []


@pytest.mark.parametrize(
    "relation", ["", "validated", "validated: 0.5.23", "validated: 0.5.23 today", "fake only:", "x"]
)
def test_anything_else_is_none(relation):
    assert any("does not say how it relates" in d for d in book(suite(relation=relation)).defects())


def test_a_plant_must_break_rules_that_exist():
    def plant(id_, *rules):
        return Plant(id_, "client", frozenset(rules), "a test", None)

    found = book(suite(), plants=[plant("p", "X-7"), plant("q")])
    assert found.defects() == ["plant q breaks no rule", "plant p breaks rule X-7, which does not exist"]


def test_a_rule_follows_from_rules_that_exist():
    ours = Suite("follows", (rule("X-1", flush_answered, follows=("X-9",)),), suite().scenarios)
    assert book(ours).defects() == ["rule X-1 follows from rule X-9, which does not exist"]


def test_an_id_is_given_once():
    with pytest.raises(ValueError, match="X-1 is defined twice"):
        book(suite(), suite())
    with pytest.raises(ValueError, match="plant or mutant p"):
        book(suite(), plants=[Plant("p", "client", frozenset({"X-1"}), "", None)] * 2)


def test_suites_and_plants_are_found_by_entry_point(toys_installed):
    found = load_book()
    assert list(found.rules)[:2] == ["TOY-1", "TOY-2"]
    assert list(found.rules)[2:] == [rule.id for rule in INVARIANTS]
    assert {found.suite_of(rule.id) for rule in INVARIANTS} == {"toy"}
    assert [p.id for p in found.plants_of("TOY-2")] == ["careless"]
    assert found.suite_of("TOY-1") == "toy"


def test_a_book_with_defects_does_not_load(toys_installed):
    toys_installed("bad", f"{__name__}:bad_suite", "refitcheck.suites")
    with pytest.raises(BrokenBook, match=r"scenario s/x names rule Y-9") as told:
        load_book()
    assert told.value.exit_code == 4


def test_a_rule_that_nothing_planted_breaks_does_not_load(toys_installed):
    toys_installed("bad", f"{__name__}:unproved_suite", "refitcheck.suites")
    with pytest.raises(BrokenBook, match=r"^rule Y-1 has no planted defect and no mutant to catch$"):
        load_book()


def test_the_invariants_are_all_proved_or_none_is(toys_installed):
    toys_installed("one", f"{__name__}:one_of_the_invariants", "refitcheck.catalogues")
    with pytest.raises(BrokenBook, match="rule EXPLORE-2 has no planted defect") as told:
        load_book()
    assert "EXPLORE-1 " not in str(told.value)


def unproved_suite():
    return suite(rules=("Y-1",), names=("Y-1",))


def one_of_the_invariants():
    return [Plant("one", "client", frozenset({"EXPLORE-1"}), "", None)]


def bad_suite():
    return suite(rules=("Y-1",), names=("Y-1", "Y-9"))


@pytest.mark.parametrize(
    "value", ["nowhere.at_all:suite", f"{__name__}:nothing", f"{__name__}:broken_suite", "math:pi"]
)
def test_a_suite_that_does_not_load_is_one_line(toys_installed, value):
    toys_installed("bad", value, "refitcheck.suites")
    with pytest.raises(UsageError, match=r"refitcheck\.suites: bad = ") as told:
        load_book()
    assert "\n" not in str(told.value)


def broken_suite():
    raise ImportError("no such thing")


def test_scenarios_are_collected_by_their_decorator():
    scenarios = ScenarioList("family", side="refit")

    @scenarios.add("X-1", "X-2", relation="fake only: a toy", min_tp=2, explore=True)
    def does_a_thing(bench):
        pass

    (found,) = scenarios
    assert (found.id, found.side, found.min_tp, found.explore) == ("family/does-a-thing", "refit", 2, True)
    assert found.rules == {"X-1", "X-2"}


@pytest.mark.parametrize(
    ("version", "specifier", "meant"),
    [
        ("0.5.23", "", True),
        ("miles", "", True),
        ("0.5.23", ">=0.5.21", True),
        ("0.5.20", ">=0.5.21", False),
        ("0.5.12.post1", ">=0.5.12", True),
        ("0.5.12.post1", ">=0.5.12.post1,<0.5.17", True),
        ("miles", "<0.5.21", True),
        ("miles", "<0.5.21,!=miles", False),
        ("miles", ">=0.5.21", False),
        ("miles", ">=0.5.21 || miles", True),
        ("0.5.20", ">=0.5.21 || miles", False),
        ("0.5.22", ">=0.5.21 || miles", True),
        ("0.5.22", "miles", False),
    ],
)
def test_versions(version, specifier, meant):
    assert version_matches(version, specifier) is meant


@pytest.mark.parametrize("specifier", ["banana", "miles,>=0.5.21", ">=0.5 | miles"])
def test_a_specifier_that_cannot_be_read(specifier):
    with pytest.raises(ValueError, match=r"specifier|alone"):
        version_matches("0.5.23", specifier)


def test_a_lane_is_found_by_name(toys_installed):
    assert isinstance(load_lane("toy"), ToyLane)
    with pytest.raises(UsageError, match=r"no lane 'moon'; installed: toy$"):
        load_lane("moon")


def test_a_client_is_found_by_name_or_by_module_and_factory(toys_installed):
    assert isinstance(load_sut("toy")(), ToySut)
    assert isinstance(load_sut("tests.harness.toys:ToySut")(), ToySut)


class NotAnAdapter:
    def refit(self):
        pass


def test_a_loaded_factory_says_what_engines_need():
    assert load_sut("harness.reference.adapter:ipc").engine_options["device"] == "cuda"
    assert load_sut("harness.reference.adapter:distributed").engine_options is None


class AsksOfAnInstance:
    @property
    def engine_options(self):
        return {}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("moon", "no system under test 'moon'; installed: toy; or package.module:factory"),
        ("no.such.module:x", "no module named 'no'"),
        ("tests.harness.toys:Nobody", "has no 'Nobody'"),
        ("math:pi", "is no factory"),
        ("tests.harness.test_suites:AsksOfAnInstance", "engine_options is a property, no mapping"),
        ("tests.harness.broken_module:x", "raised ZeroDivisionError"),
    ],
)
def test_a_client_that_is_not_there_is_one_line(toys_installed, name, told):
    with pytest.raises(UsageError, match=told) as found:
        load_sut(name)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (f"{__name__}:NotAnAdapter", "NotAnAdapter lacks setup, set_weights, capabilities, close"),
        (f"{__name__}:broken_suite", "its factory raised ImportError: no such thing"),
    ],
)
def test_a_client_that_is_no_adapter_is_one_line(name, told):
    with pytest.raises(UsageError, match=told):
        load_sut(name)()
