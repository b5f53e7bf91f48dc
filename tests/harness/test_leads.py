"""The order in which findings are told: leads first, and what stands behind them with the reason why."""

from __future__ import annotations

import pytest

from harness.faults import parse_faults
from harness.lanes.info import info_of
from harness.places import Breaches, Place
from harness.report import markdown, text
from harness.report.leads import in_order, starts
from harness.report.results_json import as_data
from harness.report.run import Run
from harness.results import Result
from harness.rules import Verdict, held
from harness.settings import Settings
from harness.units import Cause, Unit, UnitReport
from tests.harness.toys import ToyLane, rule

HURT = parse_faults("e0:flush_cache#1:before:drop")


def result(name, place, *, scenario="s/plain", causes=(), faults=(), version="0.5.23", sut="mine", **fields):
    broken = rule(name, lambda _: held(0), "refit", mend=f"mend {name}", **fields)
    verdict = Verdict("violated", 1, ("good",), f"bad {name}", "here")
    said = [Cause(cause, "bad") for cause in causes]
    return Result(broken, version, sut, 2, "violated", verdict, scenario, faults, 1, "again", tuple(said), place)


def report(*histories, version="0.5.23", sut="mine", judged=()):
    """Each history a mapping of rule to place."""
    unit = UnitReport(Unit("s/plain", version, 2, sut))
    unit.breaches = [Breaches((), places, frozenset(places) | set(judged)) for places in histories]
    return unit


def told(results, *reports):
    return [
        (one.result.rule.id, one.lead.rule.id if one.lead else "", one.why) for one in in_order(results, list(reports))
    ]


def ids(results, *reports):
    return [name for name, *_ in told(results, *reports)]


def test_what_breaks_without_a_fault_comes_before_what_breaks_after_one():
    results = [result("A-1", Place(1, after_fault=True)), result("B-1", Place(5), faults=HURT), result("C-1", Place(9))]
    assert ids(results) == ["C-1", "A-1", "B-1"]


def test_the_earlier_place_comes_first_and_then_the_order_of_the_book():
    assert ids([result("A-1", Place(7)), result("B-1", Place(3)), result("C-1", Place(3))]) == ["B-1", "C-1", "A-1"]


def test_the_lead_with_most_behind_it_comes_first():
    results = [result("A-1", Place(3)), result("B-1", Place(9)), result("C-1", Place(1), causes=["B-1"])]
    assert told(results) == [("B-1", "", ""), ("A-1", "", ""), ("C-1", "B-1", "follows")]


def test_an_answer_stands_behind_what_the_client_did_before_it_wherever_both_were_judged():
    cause, symptom = Place(3), Place(8, own=False)
    results = [result("ANSWER-1", symptom), result("DEED-1", Place(3))]
    histories = {"DEED-1": cause, "ANSWER-1": symptom}, {"ANSWER-1": symptom}
    assert told(results, report(*histories)) == [("DEED-1", "", ""), ("ANSWER-1", "DEED-1", "behind")]


@pytest.mark.parametrize(
    ("histories", "judged"),
    [
        ([{"DEED-1": Place(9), "ANSWER-1": Place(8, own=False)}], ()),  # later
        ([{"DEED-1": Place(3), "ANSWER-1": Place(8, own=False)}, {"ANSWER-1": Place(8, own=False)}], ["DEED-1"]),
        ([{"ANSWER-1": Place(8, own=False)}], ()),  # never judged together
        ([{"DEED-1": Place(3, 0), "ANSWER-1": Place(8, 1)}], ()),  # the client's own, in another refit
    ],
)
def test_it_leads_itself_where_one_history_shows_it_without_the_other(histories, judged):
    results = [result("ANSWER-1", Place(8, own=False)), result("DEED-1", Place(3))]
    seen = report(*histories, judged=judged)
    assert {lead for _, lead, _ in told(results, seen)} == {""}


def test_of_two_at_one_call_the_first_of_the_book_leads():
    results = [result("A-1", Place(3, 0)), result("B-1", Place(3, 0))]
    seen = report({"A-1": Place(3, 0), "B-1": Place(3, 0)})
    assert told(results, seen) == [("A-1", "", ""), ("B-1", "A-1", "behind")]


def test_what_a_rule_declares_wins_over_what_the_histories_show():
    results = [result("EARLY-1", Place(1, 0), causes=["LATE-1"]), result("LATE-1", Place(5, 0))]
    seen = report({"EARLY-1": Place(1, 0), "LATE-1": Place(5, 0)})
    assert told(results, seen) == [("LATE-1", "", ""), ("EARLY-1", "LATE-1", "follows")]


def test_what_stands_behind_a_follower_has_the_same_lead():
    results = [
        result("ECHO-1", Place(2), scenario="s/special", echoes=("WHOLE-1",)),
        result("WHOLE-1", Place(8, own=False)),
        result("DEED-1", Place(3)),
    ]
    seen = report({"DEED-1": Place(3), "WHOLE-1": Place(8, own=False)})
    assert told(results, seen) == [
        ("DEED-1", "", ""),
        ("ECHO-1", "DEED-1", "echoes"),
        ("WHOLE-1", "DEED-1", "behind"),
    ]


def test_an_echo_of_what_shows_after_a_fault_only_is_none_without_one():
    general = result("WHOLE-1", Place(8, after_fault=True))
    assert told([result("ECHO-1", Place(2), scenario="s/special", echoes=("WHOLE-1",)), general])[0] == (
        "ECHO-1",
        "",
        "",
    )


def test_two_that_follow_from_each_other_do_not_both_stand_behind():
    results = [result("A-1", Place(1), causes=["B-1"]), result("B-1", Place(1), causes=["A-1"])]
    assert told(results) == [("B-1", "", ""), ("A-1", "B-1", "follows")]


def test_versions_and_clients_are_ordered_by_themselves():
    results = [
        result("A-1", Place(1, after_fault=True)),
        result("A-1", Place(1), sut="other"),
        result("B-1", Place(4), causes=["A-1"], sut="other"),
    ]
    assert [one.lead is None for one in in_order(results, [])] == [True, True, False]
    assert [len(found) for found in starts(in_order(results, []))] == [2]


def test_a_run_with_several_findings_says_where_to_start():
    results = [
        result("A-1", Place(9, after_fault=True)),
        result("B-1", Place(2)),
        result("C-1", Place(8, own=False)),
        result("D-1", Place(9, after_fault=True), causes=["A-1"]),
    ]
    seen = report({"B-1": Place(2), "C-1": Place(8, own=False)})
    done = Run(Settings(suts=("mine",)), info_of(ToyLane()), results, [seen], 1.0, 1)
    assert text.starting(done) == [
        "→ start here: B-1 (0.5.23, mine): bad B-1\n"
        "  where    s/plain: here\n"
        "  mend     mend B-1\n"
        "  with it  C-1 (no earlier than it, wherever they are broken)\n"
        "  then     A-1 with D-1 (after a fault)"
    ]
    blocks = text.failures(done)
    assert [block.split()[1] for block in blocks] == ["B-1", "A-1", "C-1", "D-1"]
    assert "\n  behind   B-1, which is broken no later wherever this is\n  mend     mend C-1\n  replay" in blocks[2]
    found = as_data(done)["findings"]
    assert [(one["rule"], one["lead"], one["behind"], one["after_fault"]) for one in found] == [
        ("B-1", None, None, False),
        ("A-1", None, None, True),
        ("C-1", "B-1", "B-1", False),
        ("D-1", "A-1", "A-1", True),
    ]
    page = markdown.render(done)
    assert page.index("→ start here: B-1") < page.index("✗ B-1 MUST")


def test_one_finding_needs_no_such_words():
    done = Run(Settings(suts=("mine",)), info_of(ToyLane()), [result("A-1", Place(1))], [], 1.0, 1)
    assert text.starting(done) == []
