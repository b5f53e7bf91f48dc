"""Whose scenarios a run has: the engine's, the client's, or both; and in which order they come."""

import dataclasses

import pytest

from harness.errors import UsageError
from harness.lanes.info import info_of
from harness.results import results_of
from harness.rules import held
from harness.scenario import Scenario
from harness.settings import Settings, exploration_of, side_of
from harness.suites import Suite
from harness.units import units_of
from tests.harness.toys import ToyLane, book, rule


def scenario(name, side, rules, **rest):
    return Scenario(f"s/{name}", frozenset(rules), lambda bench: None, "fake only: a toy", side=side, **rest)


def two_sides():
    rules = (rule("E-1", lambda history: held(1)), rule("R-1", lambda history: held(1), "refit"))
    scenarios = (
        scenario("kills", "engine", ["E-1"], fatal=True),
        scenario("both-rules", "engine", ["E-1", "R-1"]),
        scenario("client", "refit", ["R-1"], lanes=frozenset({"elsewhere"})),
        scenario("client-too", "refit", ["R-1"]),
    )
    return book(Suite("s", rules, scenarios))


def scenarios_of(**settings):
    chosen = Settings(lane="toy", exploration="off", **settings)
    return [unit.scenario for unit in units_of(chosen, two_sides(), "toy", 1)]


def test_a_side_has_its_own_scenarios():
    assert scenarios_of(side="refit") == ["s/client-too"]
    assert scenarios_of(side="engine") == ["s/both-rules", "s/kills"]
    assert len(scenarios_of()) == 3


def test_what_kills_comes_last():
    assert scenarios_of()[-1] == "s/kills"


def test_rules_that_only_the_other_side_exercises_are_no_part_of_the_run():
    settings = Settings(lane="toy", exploration="off", side="refit")
    found = results_of(settings, two_sides(), info_of(ToyLane()), [])

    assert [result.rule.id for result in found] == ["R-1"]
    engine = results_of(dataclasses.replace(settings, side="engine"), two_sides(), info_of(ToyLane()), [])
    assert [result.rule.id for result in engine] == ["E-1", "R-1"]


def test_why_nothing_ran_speaks_of_this_side_only():
    here, elsewhere = scenario("engine", "engine", ["R-1"]), scenario("client", "refit", ["R-1"], lanes=frozenset("x"))
    suite = Suite("s", (rule("R-1", lambda history: held(1), "refit"),), (here, elsewhere))
    settings = Settings(lane="toy", exploration="off", side="refit")
    (result,) = results_of(settings, book(suite), info_of(ToyLane()), [])

    assert (result.status, result.verdict.missing) == ("unsupported", "no scenario of it runs on lane toy")


def test_the_side_is_the_lanes_unless_it_is_said():
    assert side_of("") is None
    assert side_of("", "engine") == "engine"
    assert side_of("refit", "engine") == "refit"
    assert side_of("both", "engine") is None
    with pytest.raises(UsageError, match=r"unknown side 'client'; one of engine, refit, both"):
        side_of("client")


def test_the_replay_line_names_the_side():
    assert "--side refit" in Settings(side="refit").replay()
    assert "--side" not in Settings().replay()


@pytest.mark.parametrize("clock", ["real", "scaled"])
def test_where_time_costs_time_nothing_is_explored_unless_it_is_said_and_never_in_full(clock):
    assert exploration_of("") == exploration_of("full") == "full"
    assert exploration_of("", clock) == "off"
    assert exploration_of("sample", clock) == exploration_of("full", clock) == "sample"
