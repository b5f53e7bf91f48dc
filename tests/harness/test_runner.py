from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

from fakes.outcome import Outcome
from harness.errors import UsageError
from harness.faults import parse_faults
from harness.results import exit_code, results_of, unjudged
from harness.rules import Verdict, held
from harness.runner import Runner
from harness.scenario import Scenario
from harness.settings import Settings
from harness.suites import Plant, Suite
from harness.units import Unit, units_of
from tests.harness.toys import ToyLane, ToySut, book, rule, toy_suite

REFUSED = Outcome(ending="reply", status=400, body={"success": False, "message": "busy"})


class Careless(ToySut):
    def refit(self, deadline_s):
        for endpoint in self.fleet.endpoints:
            endpoint.request("flush_cache", timeout_s=deadline_s)
        from harness.sut.protocol import RefitResult

        return RefitResult(self.version)


def toy_sut():
    return ToySut()


def careless():
    return Careless()


def settle(found, settings=None, lane=None, plants=(), **rest):
    settings = settings or Settings(lane="toy", suts=(f"{__name__}:toy_sut",), **rest)
    runner = Runner(settings, book(*found, plants=plants), lane or ToyLane())
    try:
        units = units_of(settings, runner.book, "toy", runner.tp, shards=2)
        reports = [runner.execute(unit) for unit in units]
    finally:
        runner.close()
    return results_of(settings, runner.book, runner.info, reports), reports


def one(scenario_run, judge, **rest):
    side = rest.pop("side", "engine")
    needs = rest.pop("needs", frozenset())
    suite = Suite(
        "s",
        (rule("X-1", judge, side, needs=frozenset(needs)),),
        (Scenario("s/x", frozenset({"X-1"}), scenario_run, "fake only: a toy", side=side, **rest),),
    )
    ((result,), _) = settle([suite])
    return result


def test_a_rule_that_was_exercised_and_not_broken_is_held():
    results, _ = settle([], exploration="off")
    by_rule = {r.rule.id: r for r in results}
    assert (by_rule["TOY-1"].status, by_rule["TOY-1"].verdict.exercised) == ("held", 1)
    assert by_rule["TOY-2"].status == "inconclusive"


def test_an_engine_that_breaks_a_rule_is_violated_and_the_replay_line_says_how():
    lane = ToyLane()
    lane.answer = lambda request: REFUSED
    results, _ = settle([], lane=lane, exploration="off", rules=("TOY-1",))
    (result,) = results
    assert (result.status, result.verdict.actual, result.scenario) == ("violated", "busy", "toy/flushes")
    assert result.replay == ("refitcheck run --rule TOY-1 --lane toy --engine fake:0.5.23 --tp 1 --seed 20261130")


def explored(monkeypatch, plans):
    monkeypatch.setattr("harness.runner.explored_plans", lambda history, **rest: [parse_faults(p) for p in plans])


def test_exploration_judges_the_client_under_every_planned_fault(monkeypatch):
    explored(monkeypatch, ["e0:flush_cache#1:before:drop", "e0:flush_cache#1:after:status500", "e0:x#1:before:drop"])
    results, reports = settle([], rules=("TOY-2",))
    (result,) = results
    assert (result.status, result.verdict.exercised, result.histories) == ("held", 2, 4)
    assert sum(report.runs for report in reports) == 4


def test_a_client_that_hides_a_failure_is_caught_and_the_replay_line_names_the_fault(monkeypatch):
    explored(monkeypatch, ["e0:flush_cache#1:after:drop"])
    settings = Settings(lane="toy", suts=(f"{__name__}:careless",), rules=("TOY-2",))
    (result,), _ = settle([], settings)
    assert result.status == "violated"
    assert "--scenario toy/refits" in result.replay
    assert "--fault 'e0:flush_cache#1:after:drop'" in result.replay
    assert f"--sut {__name__}:careless" in result.replay


def test_faults_of_the_settings_replace_exploration():
    results, reports = settle([], faults=parse_faults("e0:flush_cache#1:before:drop"), rules=("TOY-2",))
    assert results[0].status == "held"
    assert [report.runs for report in reports] == [1]


@contextmanager
def careless_client():
    yield careless


def test_a_planted_client_takes_the_place_of_the_system_under_test():
    plants = [Plant("careless", "client", frozenset({"TOY-2"}), "a test", careless_client)]
    faults = parse_faults("e0:flush_cache#1:before:drop")
    (result,), _ = settle([], plants=plants, plant="careless", faults=faults, rules=("TOY-2",))
    assert result.status == "violated"
    assert "--plant careless" in result.replay


def test_a_plant_is_pulled_out_when_the_runner_closes():
    inside = []

    @contextmanager
    def apply():
        inside.append(1)
        yield
        inside.pop()

    plants = [Plant("p", "engine", frozenset({"TOY-1"}), "a test", apply)]
    runner = Runner(Settings(plant="p"), book(plants=plants), ToyLane())
    assert inside == [1]
    runner.close()
    assert inside == []


def test_an_unknown_plant_is_a_usage_error():
    with pytest.raises(UsageError, match="no plant 'q'"):
        Runner(Settings(plant="q"), book(), ToyLane())


def broken(bench):
    raise KeyError("oops")


def lacking(bench):
    bench.unsupported("a crystal ball")


def nothing(bench):
    pass


def fine(bench):
    bench.e0.call("flush_cache")


def test_a_scenario_that_breaks_is_a_harness_error_and_no_verdict():
    result = one(broken, lambda history: held(1))
    assert (result.status, result.error) == ("error", "scenario s/x: KeyError: 'oops'")
    assert "KeyError" in result.trace


def test_a_judge_that_breaks_is_a_harness_error():
    def judge(history):
        raise ZeroDivisionError

    assert one(fine, judge).error == "scenario s/x: judge of X-1: ZeroDivisionError"


def test_a_violation_is_not_hidden_by_a_harness_error_elsewhere():
    suite = Suite(
        "s",
        (rule("X-1", lambda history: Verdict("violated", 1)),),
        (
            Scenario("s/a", frozenset({"X-1"}), fine, "fake only: a toy"),
            Scenario("s/b", frozenset({"X-1"}), broken, "fake only: a toy"),
        ),
    )
    ((result,), _) = settle([suite])
    assert result.status == "violated"


def test_what_a_scenario_says_is_unsupported_is_unsupported():
    result = one(lacking, lambda history: held(1))
    assert (result.status, result.verdict.missing) == ("unsupported", "a crystal ball")


def test_a_rule_whose_facts_the_lane_cannot_give_is_unsupported_and_names_them():
    result = one(fine, lambda history: held(1), needs={"core:flush", "core:load", "call"})
    assert (result.status, result.verdict.missing) == ("unsupported", "lane toy does not provide core:load")


def test_a_rule_whose_trainer_records_the_client_never_writes_is_unsupported():
    result = one(fine, lambda history: held(1), needs={"trainer:export"})
    assert (result.status, result.verdict.missing) == ("unsupported", "the scenario records no trainer:export")


def test_a_precondition_that_never_occurred_is_inconclusive():
    assert one(nothing, lambda history: held(0)).status == "inconclusive"


def test_a_rule_that_needs_more_ranks_is_inconclusive_and_says_so():
    result = one(fine, lambda history: held(1), min_tp=2)
    assert (result.status, result.verdict.actual) == ("inconclusive", "needs tp >= 2, this run has tp 1")


def test_a_rule_whose_scenarios_run_on_other_lanes_is_unsupported():
    result = one(fine, lambda history: held(1), lanes=frozenset({"moon"}))
    assert (result.status, result.verdict.missing) == ("unsupported", "no scenario of it runs on lane toy")


def test_the_worst_history_decides_and_the_exercised_counts_add_up():
    verdicts = iter([held(2), Verdict("violated", 1, actual="bad"), held(0)])
    scenarios = tuple(Scenario(f"s/{i}", frozenset({"X-1"}), fine, "fake only: a toy") for i in range(3))
    suite = Suite("s", (rule("X-1", lambda history: next(verdicts)),), scenarios)
    ((result,), _) = settle([suite])
    assert (result.status, result.verdict.exercised, result.scenario) == ("violated", 3, "s/1")


def test_rules_that_do_not_speak_of_a_version_are_not_part_of_the_run():
    suite = Suite(
        "s",
        (rule("X-1", lambda h: held(1), versions=">=0.5.21"), rule("X-2", lambda h: held(1))),
        (Scenario("s/x", frozenset({"X-1", "X-2"}), fine, "fake only: a toy"),),
    )
    results, _ = settle([suite], versions=("0.5.20", "0.5.23"))
    assert [(r.version, r.rule.id) for r in results] == [("0.5.20", "X-2"), ("0.5.23", "X-1"), ("0.5.23", "X-2")]


def test_a_sample_of_fatal_scenarios_is_picked_by_the_seed():
    scenarios = tuple(Scenario(f"s/{i}", frozenset({"X-1"}), fine, "fake only: a toy", fatal=True) for i in range(20))
    plain = Scenario("s/plain", frozenset({"X-1"}), fine, "fake only: a toy")
    found = book(Suite("s", (rule("X-1", lambda h: held(1)),), (*scenarios, plain)))

    def picked(seed):
        settings = Settings(lane="toy", fatal_sample=3, seed=seed)
        return [unit.scenario for unit in units_of(settings, found, "toy", 1)]

    assert len(picked(1)) == 4
    assert "s/plain" in picked(1)
    assert picked(1) == picked(1)
    assert len({tuple(picked(seed)) for seed in range(5)}) > 1


def test_a_sample_is_of_the_fatal_scenarios_that_would_run():
    def fatal(name, ids="X-1", **fields):
        return Scenario(f"s/{name}", frozenset({ids}), fine, "fake only: a toy", fatal=True, **fields)

    rules = (rule("X-1", lambda h: held(1)), rule("X-2", lambda h: held(1)))
    elsewhere = [fatal(f"elsewhere-{i}", lanes=frozenset({"moon"})) for i in range(9)]
    older = [fatal(f"older-{i}", versions="<0.5.20") for i in range(9)]
    unwanted = [fatal(f"unwanted-{i}", "X-2") for i in range(9)]
    wide = [fatal(f"wide-{i}", min_tp=2) for i in range(9)]
    here = [fatal("a"), fatal("b")]
    found = book(Suite("s", rules, (*elsewhere, *older, *unwanted, *wide, *here)))

    def picked(count, tp=1):
        settings = Settings(lane="toy", fatal_sample=count, rules=("X-1",), side="engine")
        return [unit.scenario for unit in units_of(settings, found, "toy", tp)]

    assert (len(picked(0)), len(picked(1)), picked(2), picked(9)) == (0, 1, ["s/a", "s/b"], ["s/a", "s/b"])
    assert len({tuple(picked(1, tp)) for tp in range(2, 12)}) > 1


def statuses(*given):
    settings = Settings(allow_inconclusive=("OK",))
    suite = Suite("s", tuple(rule(name, lambda h: held(1)) for name, _ in given), ())
    found = book(suite)
    base, _ = settle([toy_suite()], exploration="off")
    made = [replace(base[0], rule=found.rules[name], status=status) for name, status in given]
    return exit_code(settings, made)


def test_exit_codes():
    assert statuses(("A-1", "held"), ("A-2", "unsupported")) == 0
    assert statuses(("A-1", "held"), ("A-2", "violated"), ("A-3", "inconclusive")) == 1
    assert statuses(("A-1", "held"), ("A-3", "inconclusive")) == 2
    assert statuses(("A-1", "violated"), ("A-3", "error")) == 3
    assert statuses(("A-1", "held"), ("OK-3", "inconclusive")) == 0


def test_a_client_that_no_rule_could_judge_is_not_held_by_its_engines():
    deaf = rule("R-1", lambda history: held(1), "refit", needs=frozenset({"core:serve"}))
    rules = (rule("E-1", lambda history: held(1)), deaf)
    scenario = Scenario("s/all", frozenset({"E-1", "R-1"}), lambda bench: bench.refit(1), "fake only: a toy", "refit")
    suite = Suite("s", rules, (scenario,))
    results, _ = settle([suite], exploration="off")
    assert {r.rule.id: r.status for r in results} == {"E-1": "held", "R-1": "unsupported"}
    assert (exit_code(Settings(), results), unjudged(Settings(), results)) == (2, [results[1].sut])
    engines = Settings(side="engine")
    assert (exit_code(engines, results), unjudged(engines, results)) == (0, [])
    assert unjudged(Settings(), [replace(r, sut="", status="unsupported") for r in results]) == [""]


def test_the_same_settings_give_the_same_history():
    runner = Runner(Settings(lane="toy", suts=()), book(), ToyLane())
    scenario = runner.book.scenarios["toy/flushes"]
    assert runner.run_once(scenario, "0.5.23").records == runner.run_once(scenario, "0.5.23").records


def test_a_refit_is_marked_by_the_harness_whatever_the_client_does():
    lane = ToyLane()
    lane.answer = lambda request: REFUSED
    runner = Runner(Settings(lane="toy"), book(), lane)
    history = runner.run_once(runner.book.scenarios["toy/refits"], "0.5.23", f"{__name__}:toy_sut")
    (refit,) = history.refits()
    assert (refit.ok, refit.error_type, refit.error, refit.seed) == (False, "RuntimeError", "flush_cache: busy", 1)
    assert [c.origin for c in history.during(refit).calls()] == ["sut"]


def test_a_canary_records_what_was_expected_and_what_came():
    lane = ToyLane()
    answer = {"output_ids": [3] * 8, "meta_info": {"weight_version": "v1", "output_token_logprobs": [[-1.5, 3, None]]}}
    lane.answer = lambda request: Outcome(ending="reply", status=200, body=answer)

    def run(bench):
        bench.canary(bench.e0, "a", seed=3)
        bench.canary(bench.e0, "a", seed=4)
        bench.canary(bench.e0, "b", seed=None)

    runner = Runner(Settings(lane="toy"), book(), lane)
    history = runner.run_once(Scenario("s", frozenset(), run, ""), "0.5.23")
    canaries = history.canaries()
    assert [c.matches() for c in canaries] == [True, False, None]
    assert canaries[0].weight_version == "v1"
    assert canaries[0].logprobs == (-1.5,)
    assert canaries[0].prompt == canaries[1].prompt != canaries[2].prompt
    assert [c.origin for c in history.calls("generate")] == ["traffic"] * 3


def test_units_of_explorations_come_first_and_in_shards():
    units = units_of(Settings(lane="toy"), book(), "toy", 1, shards=3)
    assert [u.shard for u in units] == [(0, 3), (1, 3), (2, 3), (0, 0), (0, 0)]
    assert units[-1] == Unit("toy/refits", "0.5.23", 1, "reference")


def test_worker_processes_find_what_one_process_finds():
    from harness.lanes.fake import FakeLane
    from harness.pool import execute

    settings = Settings(rules=("SESS-51", "SESS-52"), tp=1, exploration="off")
    runner = Runner(settings, lane=FakeLane())
    units = units_of(settings, runner.book, "fake", 1)
    assert len(units) >= 2

    def found(workers):
        reports = sorted(execute(settings, units, workers=workers), key=lambda report: units.index(report.unit))
        return [(report.unit, report.error, report.findings) for report in reports]

    assert found(1) == found(2)
