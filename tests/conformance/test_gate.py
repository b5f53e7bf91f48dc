"""The gate sees every kind of corruption, and lets every correct refit through."""

from __future__ import annotations

import math

import pytest

from conformance.gate import LIMIT, scored
from conformance.plants import catalogue
from harness.scoring import mult_prob_error
from tests.conformance.running import book, run

SCENARIOS = {s.id.rsplit("/", 1)[-1]: s for s in book().scenarios_of("VERIF-4")}
PLANTS = {plant.id: plant for plant in catalogue()}


def errors(scenario: str, plant: str = "") -> list[float]:
    if not plant:
        history = run(SCENARIOS[scenario], "0.5.23")
    else:
        with PLANTS[plant].apply():
            history = run(SCENARIOS[scenario], "0.5.23")
    return [error for _, _, error in scored(history)]


@pytest.mark.parametrize(("scenario", "limit"), [("as-it-is-served", 1.02), ("in-float32", 1.001), ("of-pairs", 1.02)])
def test_a_correct_refit_stays_far_below(scenario, limit):
    found = errors(scenario)
    assert len(found) == 4
    assert max(found) < limit < LIMIT


@pytest.mark.parametrize(
    ("scenario", "plant"),
    [
        ("in-float32", "ranks-of-different-updates"),
        ("of-pairs", "scales-of-the-first-refit"),
        ("in-float32", "no-flush"),
        ("in-float32", "one-norm-left-out"),
    ],
)
def test_a_corruption_exceeds_it(scenario, plant):
    assert max(errors(scenario, plant)) > LIMIT


def test_stale_kv_is_seen_on_the_prompt_with_cached_tokens_alone():
    history_errors = errors("in-float32", "no-flush")
    warm, fresh = history_errors[::2], history_errors[1::2]
    assert min(warm) > LIMIT
    assert max(fresh) < 1.001


def test_the_error_is_a_mean_over_tokens_whatever_the_sign():
    assert mult_prob_error([-1.0, -2.0], [-1.0, -2.0]) == 1.0
    assert mult_prob_error([-1.0, -2.0], [-1.5, -1.5]) == pytest.approx(math.exp(0.5))
    with pytest.raises(ValueError, match="1 and 2 log-probabilities"):
        mult_prob_error([-1.0], [-1.0, -1.0])
    with pytest.raises(ValueError, match="0 and 0"):
        mult_prob_error([], [])
