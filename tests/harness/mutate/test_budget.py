from __future__ import annotations

import pytest

from harness.mutate.budget import BudgetSpent, limit_for
from tests.harness.mutate.samples import live

MODULE = """
    def loop(n):
        total = 0
        for i in range(n):
            total += i
        return total

    def forever():
        while True:
            pass

    def stubborn():
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass

    def generator(n):
        "Docstring."
        for i in range(n):
            yield i

    def recursive(n):
        return 0 if n == 0 else recursive(n - 1)
"""


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    module, program = live(tmp_path, MODULE, monkeypatch)
    yield module, program.budget
    program.budget.stop()


def test_counts_entries_and_loop_turns_exactly(loaded):
    module, budget = loaded
    budget.start()
    assert module.loop(10) == 45
    assert budget.used == 11
    assert list(module.generator(3)) == [0, 1, 2]
    assert budget.used == 15
    module.recursive(4)
    assert budget.used == 20


@pytest.mark.parametrize("name", ["forever", "stubborn"])
def test_an_endless_loop_ends_with_the_budget_and_no_handler_keeps_it(loaded, name):
    module, budget = loaded
    budget.start(1000)
    with pytest.raises(BudgetSpent):
        getattr(module, name)()
    assert budget.used == 1000


def test_a_spent_budget_stays_spent_until_it_is_started_again(loaded):
    module, budget = loaded
    budget.start(2)
    for _ in range(3):
        with pytest.raises(BudgetSpent):
            module.loop(5)
    budget.start(100)
    assert module.loop(5) == 10


def test_the_docstring_stays_one(loaded):
    assert loaded[0].generator.__doc__ == "Docstring."


def test_the_limit_leaves_room_and_grows_with_what_a_test_needs():
    assert limit_for(0) > 10_000
    assert limit_for(1_000_000) > 10 * 1_000_000
