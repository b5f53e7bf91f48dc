from __future__ import annotations

import pytest

from harness.mutate import operators
from harness.mutate.mutant import PatternGoneError
from tests.harness.mutate.samples import live

MODULE = """
    import functools

    def doubled(function):
        @functools.wraps(function)
        def inner(x):
            return function(x) * 2
        return inner

    @doubled
    def ten(x):
        return x + 10

    @doubled
    def five(x):
        return x + 5

    def between(low, high):
        def within(x):
            return low < x and x < high
        return within

    CHECKS = [between(0, 3), between(10, 12)]

    def adding(n):
        return lambda x: x + n

    def both(n):
        return (lambda x: x + n), (lambda x: x - n)

    ADD, (PLUS, MINUS) = adding(1), both(1)
    del adding
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    module, program = live(tmp_path, MODULE, monkeypatch)
    yield module, program
    program.budget.stop()


def site(program, op, text):
    [source] = program.sources.values()
    return next(s for s in operators.sites(source) if s.op == op and s.change.original == text)


def under(program, op, text, use):
    undo = site(program, op, text).apply("", program)
    try:
        return use()
    finally:
        undo()


def test_what_a_decorator_made_at_import_is_mutated_in_every_function_that_it_wraps(made):
    module, program = made
    assert (module.ten(1), module.five(1)) == (22, 12)
    assert under(program, "arithmetic", "function(x) * 2", lambda: (module.ten(1), module.five(1))) == (5, 3)
    assert (module.ten(1), module.five(1)) == (22, 12)


def test_so_is_what_a_factory_made_and_its_variables_stay_where_the_change_drops_one(made):
    module, program = made
    answers = [[within(x) for x in (-1, 1, 11, 13)] for within in module.CHECKS]
    assert answers == [[False, True, False, False], [False, False, True, False]]
    under_ = under(program, "drop-guard", "low < x and x < high", lambda: [c(-1) for c in module.CHECKS])
    assert under_ == [True, True]
    assert module.CHECKS[0](-1) is False


def test_a_factory_that_is_gone_is_alive_in_what_it_made(made):
    module, program = made
    assert under(program, "arithmetic", "x + n", lambda: module.ADD(5)) == 4
    assert [f.qualname for f in program.dead] == []
    assert module.ADD(5) == 6


def test_steps_are_counted_in_what_was_made_at_import(made):
    module, program = made
    program.budget.start()
    module.ten(1)
    assert program.budget.used == 2


def test_two_lambdas_in_a_line_cannot_be_told_apart_so_those_made_before_stay(made):
    module, program = made
    use = lambda: (module.PLUS(5), module.both(1)[0](5))  # noqa: E731 - a lambda is what is meant
    assert under(program, "arithmetic", "x - n", use) == (6, 6)
    assert under(program, "arithmetic", "x - n", lambda: (module.MINUS(5), module.both(1)[1](5))) == (4, 6)


def test_what_is_alive_nowhere_is_told(tmp_path, monkeypatch):
    _, program = live(tmp_path, "def once(x):\n    return x + 1\n\nonce = once(1)\n", monkeypatch)
    with pytest.raises(PatternGoneError, match="once is not alive"):
        site(program, "arithmetic", "x + 1").apply("", program)
    program.budget.stop()
