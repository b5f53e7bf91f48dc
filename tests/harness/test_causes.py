"""What follows from what: causes first, each consequence marked, and only where the same history shows both."""

from __future__ import annotations

import pytest

from harness.faults import parse_faults
from harness.places import Place
from harness.report.leads import echo_of, in_order
from harness.report.text import failure
from harness.results import results_of
from harness.rules import Verdict, held, violated
from harness.runner import Runner
from harness.scenario import Scenario
from harness.settings import Settings
from harness.suites import Suite
from harness.units import Cause, Finding, Unit, units_of, worse
from tests.harness.toys import ToyLane, book, rule


def broken(what):
    return lambda history: Verdict("violated", 1, ("whole",), what, "refit 1")


def when(name, verdict):
    """A judge that finds it in scenarios of that name only."""
    return lambda history: verdict(history) if history.header.meta["scenario"] == f"s/{name}" else held(1)


def refits(bench):
    bench.refit(1)


def ids(told):
    return [one.result.rule.id for one in told]


def results(known, exercised, **settings):
    scenarios = tuple(
        Scenario(f"s/{name}", frozenset(ids), refits, "fake only: a toy", side="refit")
        for name, ids in exercised.items()
    )
    chosen = Settings(lane="toy", suts=("tests.harness.toys:ToySut",), exploration="off", **settings)
    found = book(Suite("s", tuple(known), scenarios))
    runner = Runner(chosen, found, ToyLane())
    units = units_of(chosen, found, "toy", runner.tp)
    out = results_of(chosen, found, runner.info, [runner.execute(unit) for unit in units])
    return {result.rule.id: result for result in out}, runner.info


NAMES = rule("NAME-1", broken("never sent: norm.weight"), "refit")
CONTENT = rule("WHOLE-1", broken("[1, 2] of no set"), "refit", follows=("NAME-1",))
ALONE = rule("ALONE-1", broken("left paused"), "refit")
OTHER = rule("OTHER-1", broken("flushed never"), "refit")


def test_a_finding_says_what_it_follows_from_and_the_cause_comes_first():
    found, info = results([ALONE, CONTENT, NAMES], {"one": ("ALONE-1", "WHOLE-1", "NAME-1")})
    assert found["WHOLE-1"].causes == (Cause("NAME-1", "never sent: norm.weight"),)
    assert found["NAME-1"].causes == found["ALONE-1"].causes == ()
    assert ids(in_order(list(found.values()), [])) == ["NAME-1", "ALONE-1", "WHOLE-1"]
    block = failure(found["WHOLE-1"], info)
    assert "\n  follows  likely from NAME-1, which the same history breaks: never sent: norm.weight\n  replay" in block
    assert "follows" not in failure(found["ALONE-1"], info)


def test_the_cause_is_found_where_its_scenario_does_not_name_it_and_where_it_was_not_asked_for():
    exercised = {"one": ("WHOLE-1",), "two": ("NAME-1",)}
    found, _ = results([CONTENT, NAMES], exercised, rules=("WHOLE-1",))
    assert list(found) == ["WHOLE-1"]
    assert found["WHOLE-1"].causes == (Cause("NAME-1", "never sent: norm.weight"),)


def test_a_cause_in_another_history_is_none():
    names = rule("NAME-1", when("two", broken("never sent: norm.weight")), "refit")
    found, _ = results([CONTENT, names], {"one": ("WHOLE-1",), "two": ("NAME-1",)})
    assert found["NAME-1"].status == "violated"
    assert found["WHOLE-1"].causes == ()


def test_a_history_without_the_cause_decides_before_one_with_it():
    names = rule("NAME-1", when("one", broken("never sent: norm.weight")), "refit")
    found, _ = results([CONTENT, names], {"one": ("WHOLE-1", "NAME-1"), "two": ("WHOLE-1",)})
    assert (found["WHOLE-1"].causes, found["WHOLE-1"].scenario) == ((), "s/two")


def test_a_cause_that_does_not_speak_of_the_version_is_none():
    names = rule("NAME-1", broken("never sent"), "refit", versions=">=0.5.30")
    found, _ = results([CONTENT, names], {"one": ("WHOLE-1", "NAME-1")})
    assert found["WHOLE-1"].causes == ()


def test_the_worse_of_two_findings_keeps_its_own_causes():
    with_cause = Finding(Verdict("violated", 1, actual="a"), causes=(Cause("X-1", "x"),))
    held_ = Finding(held(2))
    both = worse(held_, with_cause)
    assert (both.causes, both.verdict.exercised, both.histories) == (with_cause.causes, 3, 2)
    alone = worse(with_cause, Finding(Verdict("violated", 1, actual="b")))
    assert (alone.causes, alone.verdict.actual) == ((), "b")


def test_of_two_violations_one_without_a_fault_says_more():
    hurt = Finding(Verdict("violated", 1, actual="a"), place=Place(3, after_fault=True))
    given = Finding(Verdict("violated", 1, actual="b"), parse_faults("e0:flush_cache#1:before:drop"), place=Place(3))
    plain = Finding(Verdict("violated", 1, actual="c"), place=Place(9))
    assert [worse(hurt, given).verdict.actual, worse(given, plain).verdict.actual] == ["b", "c"]
    assert (worse(hurt, plain).place, worse(plain, hurt).place) == (Place(9), Place(9))
    assert worse(Finding(held(1), given.faults), Finding(held(1))).faults == given.faults  # of what holds the first


def test_what_is_broken_in_a_plainer_scenario_too_is_an_echo_and_comes_last():
    special = rule("SPECIAL-1", when("aux", broken("[1, 2] of no set")), "refit", echoes=("ALONE-1",))
    found, info = results([special, OTHER, ALONE], {"aux": ("SPECIAL-1",), "plain": ("OTHER-1", "ALONE-1")})
    both = list(found.values())
    assert ids(in_order(both, [])) == ["ALONE-1", "OTHER-1", "SPECIAL-1"]
    block = failure(found["SPECIAL-1"], info, in_order(both, [])[-1])
    assert "\n  echo     likely of ALONE-1, which is broken in s/plain, too\n  replay" in block


def test_what_is_broken_in_its_own_scenario_alone_is_no_echo():
    special = rule("SPECIAL-1", when("aux", broken("[1, 2] of no set")), "refit", echoes=("ALONE-1",))
    found, _ = results([special, ALONE], {"aux": ("SPECIAL-1", "ALONE-1")})
    assert found["ALONE-1"].status == "violated"
    assert echo_of(found["SPECIAL-1"], list(found.values())) is None


@pytest.mark.parametrize("widely", [True, False])
def test_what_else_a_broken_history_breaks_is_noted_for_the_order_and_for_nothing_else(widely):
    deed = rule("DEED-1", lambda h: violated(allowed=["a"], actual="b", where=str(h.calls(origin="sut")[0])), "refit")
    fragile = rule("FRAGILE-1", lambda h: 1 / 0, "refit")
    missing = rule("MISSING-1", lambda _: held(1), "refit", needs=frozenset({"trainer:export"}))
    other_side = rule("ENGINE-1", broken("x"))
    scenarios = (
        Scenario("s/one", frozenset({"WHOLE-1"}), refits, "fake only: a toy", side="refit"),
        Scenario("s/two", frozenset({"DEED-1", "FRAGILE-1", "MISSING-1", "ENGINE-1"}), refits, "fake only: a toy"),
    )
    found = book(Suite("s", (CONTENT, NAMES, deed, fragile, missing, other_side), scenarios))
    runner = Runner(Settings(lane="toy", suts=("tests.harness.toys:ToySut",), exploration="off"), found, ToyLane())
    runner.widely = widely
    report = runner.execute(Unit("s/one", "0.5.23", 1, "tests.harness.toys:ToySut"))
    assert list(report.findings) == ["WHOLE-1"]
    (breaches,) = report.breaches
    assert set(breaches.places) == ({"WHOLE-1", "NAME-1", "DEED-1"} if widely else {"WHOLE-1"})
    assert breaches.judged == set(breaches.places)
    assert not widely or breaches.places["DEED-1"].own
