"""Mutants that break an invariant of fault exploration meet faulted runs; others do not pay for them."""

from __future__ import annotations

import pytest

from conformance.plants import catalogue
from harness.mutate.rule_checks import host


@pytest.fixture(scope="module")
def explored():
    found = host({"breaks": ["EXPLORE-3"], "side": "refit"})
    yield [check for check in found.checks if check.id.startswith("explored ")]
    found.close()


def test_they_judge_the_invariants_and_nothing_else(explored):
    assert len(explored) > 30
    assert {rule.split("-")[0] for check in explored for rule in check.rules} == {"EXPLORE"}
    assert {fault.split("#")[0] for check in explored for fault in [check.id.rsplit(" ", 1)[1]]} >= {
        "e0:begin_weight_update",
        "e0:update_weights_from_tensor",
        "e0:resume_memory_occupation",
    }


def test_the_good_client_keeps_them_and_a_planted_one_does_not(explored, monkeypatch):
    (check,) = (c for c in explored if "two-refits [" in c.id and c.id.endswith("e0:flush_cache#1:before:status500"))
    assert check.run() == []
    monkeypatch.setattr("harness.mutate.rule_checks._fault_free", {})
    (plant,) = (p for p in catalogue() if "EXPLORE-3" in p.breaks)
    with plant.apply():
        assert [finding.rule for finding in check.run()] == ["EXPLORE-3"]


def test_a_mutant_of_another_rule_does_not_pay_for_them():
    found = host({"breaks": ["LIVE-1"], "side": "refit"})
    assert not [check for check in found.checks if check.id.startswith("explored ")]
    found.close()
