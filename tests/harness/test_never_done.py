"""An inconclusive rule about calls that a client never makes says so, and in how many refits."""

from __future__ import annotations

import dataclasses

import pytest

from harness.report.text import failure
from harness.results import results_of
from harness.rules import held, violated
from harness.runner import Runner
from harness.scenario import Scenario
from harness.settings import Settings
from harness.suites import Suite
from harness.units import units_of
from tests.harness.toys import ToyLane, ToySut, book, rule


class TwoScenarios(ToySut):
    """Flushes, as a toy does, with a body that names a version."""

    def refit(self, deadline_s):
        self.fleet.endpoints[0].request(
            "flush_cache", {"weight_version": None, "mode": "retract"}, timeout_s=deadline_s
        )
        return super().refit(deadline_s)


def refits(bench):
    bench.refit(1)
    bench.refit(2)


def result_of(speaks_of, verdict=None, sut="ToySut"):
    mine = rule("X-1", lambda _: verdict or held(0), "refit", speaks_of=speaks_of)
    scenarios = tuple(
        Scenario(f"s/{name}", frozenset({"X-1"}), refits, "fake only: a toy", side="refit") for name in ("one", "two")
    )
    settings = Settings(lane="toy", suts=(f"{__name__}:{sut}",), exploration="off")
    found = book(Suite("s", (mine,), scenarios))
    runner = Runner(settings, found, ToyLane())
    reports = [runner.execute(unit) for unit in units_of(settings, found, "toy", runner.tp)]
    (result,) = results_of(settings, found, runner.info, reports)
    return result, failure(result, runner.info)


@pytest.mark.parametrize(
    ("speaks_of", "why"),
    [
        (("pause_generation",), "the client never called /pause_generation in 4 refits"),
        ((":weight_version",), "the client never sent weight_version in 4 refits"),
        (
            (":weight_version", "update_weight_version"),
            "never sent weight_version, nor called /update_weight_version in 4",
        ),
        (("flush_cache",), "its precondition never occurred"),
        (("pause_generation", "flush_cache"), "its precondition never occurred"),
        ((), "its precondition never occurred"),
    ],
)
def test_what_the_client_never_did_is_the_reason(speaks_of, why):
    result, block = result_of(speaks_of)
    assert result.status == "inconclusive"
    assert why in block


def test_a_field_counts_where_it_has_a_value():
    assert "never sent weight_version" in result_of((":weight_version",), sut="TwoScenarios")[1]
    assert "its precondition never occurred" in result_of((":mode",), sut="TwoScenarios")[1]


def test_a_verdict_of_its_own_stays():
    said = dataclasses.replace(held(0), actual="the judge's own words")
    assert result_of(("pause_generation",), said)[0].verdict.actual == "the judge's own words"
    broken = violated(allowed=["a"], actual="b", where="c")
    assert result_of(("pause_generation",), broken)[0].verdict.actual == "b"
    assert result_of(("pause_generation",), held(1))[0].verdict.actual == ""
