"""`explain` shows what a report would say of whoever breaks the rule, with its numbers."""

from __future__ import annotations

import pytest

from harness.example import example_of
from harness.listing import explained
from harness.suites import load_book


@pytest.fixture(scope="module")
def book():
    return load_book()


def test_the_example_of_a_violation_has_its_numbers_and_its_replay_line(book):
    lines = [line.split(None, 1) for line in explained(book, "CACHE-1")]
    told = {word: rest for word, *more in lines for rest in more}
    assert told["example"] == "a refused flush is asked again at once (planted; seen in THUDM/slime#1953)"
    assert told["allowed"] == "a wait of at least 0.05 s before the next /flush_cache"
    assert told["actual"] == "0.000 s between two polls"
    assert told["where"].startswith("refit/faults/not-idle-yet: refit 1 on e0: ")
    assert told["replay"].endswith("--plant flush-without-waits")
    assert told["provenance"].startswith(("not yet: ", "validated on "))


@pytest.mark.parametrize("rule", ["EXPLORE-3", "SESS-52"])
def test_explored_rules_and_rules_of_engines_have_one_too(book, rule):
    found = example_of(book, book.rules[rule])
    assert found is not None
    assert found.verdict.status == "violated"
    assert found.plant.id in found.replay
    assert ("--fault" in found.replay) == (rule == "EXPLORE-3")
