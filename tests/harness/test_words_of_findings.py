"""What a new user needs to read in a run: whose seconds, what an adapter does not declare, and nothing unrelated."""

from __future__ import annotations

import dataclasses

import pytest

from harness.cli import invoke
from harness.endpoint import GatedEndpoint
from harness.errors import UsageError
from harness.judgement import Judgement
from harness.lanes.info import info_of
from harness.lanes.loader import load_lane
from harness.report.text import failure, header
from harness.rules import held, violated
from harness.scenario import Scenario
from harness.settings import Settings
from harness.suites import Book, Suite
from tests.conformance.tape import Tape
from tests.harness.test_runner import settle
from tests.harness.toys import ToyLane, refits, rule


def declared(*optional):
    tape = Tape(tp=2)
    tape.fact("caps", engine="", **({} if None in optional else {"optional": list(optional)}))
    return tape.history


@pytest.mark.parametrize(
    ("history", "status"),
    [
        (declared("rollout"), "unsupported"),
        (declared("phase"), "inconclusive"),
        (declared(None), "inconclusive"),  # written by one that did not say
        (Tape(tp=2).history, "inconclusive"),
    ],
)
def test_what_an_adapter_does_not_declare_and_never_did_is_unsupported(history, status):
    verdict = Judgement(Book(), ToyLane()).verdict(
        rule("X-1", lambda _: held(0), "refit", asks=frozenset({"phase"})), history
    )
    assert verdict.status == status
    if status == "unsupported":
        assert verdict.missing == "the adapter does not declare phase (Caps.optional)"


def test_what_it_does_all_the_same_is_judged():
    asks = rule("X-1", lambda _: held(1), "refit", asks=frozenset({"phase"}))
    assert Judgement(Book(), ToyLane()).verdict(asks, declared()).status == "held"


def test_a_scaled_clock_says_what_a_second_is():
    lane = load_lane("http", {"time_scale": "0.2"})
    info = info_of(lane)
    lane.close()
    assert info.clock_told == "scaled, 1 s of yours counts as 5 s (--lane-option time_scale=0.2)"
    assert "exploration off (--exploration sample makes" in header(Settings(exploration="off"), info)
    assert header(Settings(exploration="off"), info_of(ToyLane())).endswith("exploration off")
    assert header(Settings(sut_options={"size": "1"}), info).endswith("sut options size=1")
    assert info_of(ToyLane()).clock_told == "virtual"
    ((result, *_), _) = settle([], exploration="off", rules=("TOY-1",))
    slow = violated(allowed=["an end within 20 s"], actual="after 51.2 s", where="e0")
    found = dataclasses.replace(result, status="violated", verdict=slow)
    assert "  clock    scaled, 1 s of yours counts as 5 s" in failure(found, info)
    told = dataclasses.replace(found, verdict=violated(allowed=["200"], actual="400", where="e0"))
    assert "  clock " not in failure(told, info)
    assert "  clock " not in failure(found, info_of(ToyLane()))


def test_a_rule_that_never_occurred_is_replayed_without_the_faults_of_some_history(monkeypatch):
    from harness.faults import parse_faults

    monkeypatch.setattr(
        "harness.runner.explored_plans", lambda history, **rest: [parse_faults("e0:flush_cache#1:before:drop")]
    )
    never = rule("X-1", lambda _: held(0), "refit")
    scenario = Scenario("s/x", frozenset({"X-1"}), refits, "fake only: a toy", side="refit", explore=True)
    results, _ = settle([Suite("s", (never,), (scenario,))], rules=("X-1",))
    (result,) = (r for r in results if r.rule.id == "X-1")
    assert (result.status, result.faults) == ("inconclusive", ())
    assert "--fault" not in result.replay


@pytest.mark.parametrize("how", ["request", "start"])
def test_a_call_without_an_end_is_told_in_one_line(how):
    endpoint = GatedEndpoint(type("E", (), {"name": "e0", "spec": type("S", (), {"tp": 1})})(), (0,))
    with pytest.raises(UsageError, match=r"called /flush_cache with timeout_s=None: it is a number of seconds"):
        getattr(endpoint, how)("flush_cache", timeout_s=None)


def test_the_header_of_a_run_says_it(capsys):
    invoke(
        [
            "run",
            "--sut",
            "tests.examples.minimal_adapter:Adapter",
            "--rule",
            "MEM-1",
            "--rule",
            "NAME-3",
            "--rule",
            "SESS-1",
            "--exploration",
            "off",
            "--scenario",
            "refit/envelope/two-refits",
            "--scenario",
            "refit/state/dtypes-and-orders",
            "-n",
            "1",
        ]
    )
    out = " ".join(capsys.readouterr().out.split())
    assert "clock: virtual" in out
    assert "unsupported, the adapter does not declare phase (Caps.optional): MEM-1" in out
    assert "unsupported, the adapter does not declare buckets (Caps.optional): NAME-3" in out
    assert "inconclusive 0" in out
