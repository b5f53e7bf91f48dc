from __future__ import annotations

import contextlib

import pytest

from harness.mutate.marks import Marks
from tests.harness.mutate.samples import live

MODULE = '''
    def branches(x):
        """Says where."""
        if x > 1:
            y = (
                x + 1
            )
        elif x:
            y = 0
        else:
            raise ValueError
        return y


    def guarded(f):
        try:
            f()
            done = True
        except KeyError:
            done = False
        finally:
            f = None
        with open(__file__):
            while done:
                return 1


    def later():
        def inner():
            return 1

        return (
            inner,
            lambda: 2,
            (n
             for n in range(2)),
        )


    def kind(x):
        match x:
            case 1 if x:
                return "one"
            case _:
                class Other:
                    """Other."""
                    y = 1
                return Other.y


    def adding(n):
        return lambda x: (
            x + n
        )


    async def waits():
        async with later:
            pass


    ADD = adding(1)
'''


@pytest.fixture
def ran(tmp_path, monkeypatch):
    module, program = live(tmp_path, MODULE, monkeypatch)
    marks = Marks(program)

    def lines(use):
        marks.take()
        with contextlib.suppress(Exception):
            use(module)
        [source] = program.sources.values()
        return sorted(marks.take().get(str(source.path), ()))

    yield lines
    program.budget.stop()


def _raise(error):
    raise error


@pytest.mark.parametrize(
    ("use", "lines"),
    [
        (lambda m: m.branches(2), [3, 4, 5, 12]),
        (lambda m: m.branches(1), [3, 4, 8, 9, 12]),
        (lambda m: m.branches(0), [3, 4, 8, 11]),
        (lambda m: m.guarded(list), [16, 17, 18, 22, 23, 24, 25]),
        (lambda m: m.guarded(lambda: _raise(KeyError)), [16, 17, 20, 22, 23, 24]),
        (lambda m: m.guarded(lambda: _raise(OSError)), [16, 17, 22]),
        (lambda m: m.kind(1), [41, 43]),
        (lambda m: m.kind(2), [41, 45, 46, 47, 48]),
        (lambda m: m.ADD(1), [52]),
        (lambda m: None, []),
    ],
)
def test_the_statements_that_were_begun(ran, use, lines):
    assert ran(use) == lines


def test_what_is_made_in_one_check_and_used_in_another_runs_in_that_one(ran):
    kept = []
    assert ran(lambda m: kept.extend(m.later())) == [29, 32]
    inner, two, numbers = kept
    assert ran(lambda m: inner()) == [30]
    assert ran(lambda m: two()) == [32]
    assert ran(lambda m: list(numbers)) == [32]


def test_what_documents_stays_and_values_are_the_same(tmp_path, monkeypatch):
    module, program = live(tmp_path, MODULE, monkeypatch)
    Marks(program)
    assert module.branches.__doc__ == "Says where."
    assert (module.branches(2), module.guarded(list), module.kind(2), module.ADD(2)) == (3, 1, 1, 3)
    inner, two, numbers = module.later()
    assert (inner(), two(), list(numbers)) == (1, 2, [0, 1])
    program.budget.stop()
