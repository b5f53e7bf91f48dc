"""Fault plans: every call of the first refit times every kind of fault, reproducible from one line."""

from __future__ import annotations

import pytest

from harness.explore import KINDS, explore, plan
from harness.explore.plans import NINE, SAMPLE, call_points
from harness.faults import faults_text, parse_faults
from harness.reference.adapter import ReferenceSut
from tests.harness.explore.scripted_lane import runner


def record(**options):
    return runner(lambda: ReferenceSut(bucket_bytes=64), **options)(())


def test_every_call_is_met_by_every_kind():
    history = record(engines=3)
    points = call_points(history)
    assert len(points) == 27
    assert len(plan(history)) == 27 * 9
    assert len(plan(history, kinds=KINDS)) == 27 * len(KINDS)
    assert len(set(plan(history, kinds=KINDS))) == 27 * len(KINDS)


def test_the_calls_of_later_refits_and_the_traffic_are_left_alone():
    points = call_points(record(engines=1))
    assert [op for _, op, _ in points] == [
        "model_info",
        "pause_generation",
        "flush_cache",
        "begin_weight_update",
        *["update_weights_from_tensor"] * 3,
        "end_weight_update",
        "continue_generation",
    ]
    assert [n for _, op, n in points if op == "update_weights_from_tensor"] == [1, 2, 3]


def test_what_gives_the_memory_away_is_met_too():
    assert ("e0", "release_memory_occupation", 1) in call_points(record(engines=1, offload=True))


def test_engines_can_be_chosen():
    assert {f.engine for p in plan(record(engines=3), engines=["e1"], kinds=("drop_before",)) for f in p} == {"e1"}


def test_a_partial_fan_out_spares_one_engine():
    plans = plan(record(engines=3), kinds=("partial",))
    assert len(plans) == 27
    assert all(len({f.engine for f in faults}) == 2 for faults in plans)
    assert plan(record(engines=1), kinds=("partial",)) == []


def test_a_plan_survives_its_text():
    for faults in plan(record(engines=3), kinds=KINDS):
        assert parse_faults(faults_text(faults)) == faults


def test_a_sample_is_seeded_and_meets_every_operation():
    history = record(engines=3)
    some = plan(history, full=False, seed=4)
    assert len(some) == SAMPLE
    assert some == plan(history, full=False, seed=4)
    assert some != plan(history, full=False, seed=5)
    assert {p[0].op for p in some} == {op for _, op, _ in call_points(history)}
    assert set(some) <= set(plan(history))


def test_the_reproduce_line_of_an_exploration_runs_it_again():
    run = runner(lambda: ReferenceSut(bucket_bytes=64), engines=2)
    for explored in list(explore(run, kinds=("status500", "partial")))[1::7]:
        again = run(parse_faults(explored.reproduce))
        assert [str(c) for c in again.calls()] == [str(c) for c in explored.history.calls()]


@pytest.mark.parametrize("kind", NINE)
def test_no_kind_is_empty(kind):
    assert plan(record(engines=2), kinds=(kind,))


class Asks(ReferenceSut):
    def refit(self, deadline_s):
        for endpoint in self._fleet.endpoints:
            endpoint.request("generate", {"input_ids": [1]}, timeout_s=1)
        return super().refit(deadline_s)


def test_generations_of_the_client_are_left_alone():
    history = runner(lambda: Asks(bucket_bytes=64), engines=1)(())
    assert history.calls("generate", origin="sut")
    assert "generate" not in {op for _, op, _ in call_points(history)}
