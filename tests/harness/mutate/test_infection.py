from __future__ import annotations

import collections
import itertools
import math

import pytest

from harness.mutate import infection, operators, scout
from harness.mutate.forked import forked
from harness.mutate.infection import Screening, same
from harness.mutate.jobs import Step
from harness.mutate.pursuit import run_step
from tests.harness.mutate.samples import Says, live

CODE = """
from collections import defaultdict


def _push(log, x):
    log.append(x)
    return len(log)


def compared(a, b, c):
    return (a < b, a <= b < c, a == b != c, a in (b, c), a is b)


def guarded(items, limit, table):
    out, count = [], 0
    for item in items:
        if item in table and (item > limit or not count):
            count += table.get(item, 1)
            out += [item]
        elif table and item == limit:
            continue
        else:
            assert item != 7, "seven"
            count -= 1
        if count > 3:
            break
    return out, count


def impure(stack, limit):
    log = []
    if _push(log, 1) + len(stack) > limit and _push(log, 2) > 1:
        log.append("both")
    if not stack.pop() or _push(log, 3) == 99:
        log.append("either")
    n = len(log) + _push(log, 4) * 2
    while stack and stack.pop() > limit:
        n += _push(log, 5) - 5
    return log, n


def iterated(items, k):
    it = iter(items)
    first = next(it, 0)
    found = k in it
    rest = [x + 1 for x in it if x % 2 == 0 and x > first]
    return first, found, rest, any(x > k for x in items), sum(x for x in items[1:] if x != k)


def missing(keys, k):
    made = defaultdict(list)
    for key in keys:
        made[key + 1].append(key)
        if made[key] == [k] or key < 0:
            made[key].append("seen")
    return sorted(made.items(), key=str)


def cut(items, lo, hi):
    part = items[lo:hi]
    part.append("end")
    shared = items if lo < hi else items[:]
    shared.append("x")
    return part, items, f"{lo + 1}-{hi * 2}-{len(part) > 2}", items[-1:], [i * 2 for i in range(lo, hi)]


def raising(items, i):
    try:
        value = items[i + 0] // (i * 1)
    except ZeroDivisionError:
        value = -1
    try:
        for x in items:
            if x > i:
                raise KeyError(x)
    finally:
        items.append(value)
    return value


def floats(x, y):
    best = x if x > y else y
    return best, 0.0 if x == y else x - y, (x + y) / 2, -x if x <= 0 else abs(y)


def bits(n):
    n |= 1
    total = 0
    while n > 0:
        total += n & 1
        n >>= 1
        if total > 20:
            break
    return total << 1, n | total


def later(items, n):
    def inner(x, y=2):
        return x > n and y or x - n

    made = (inner(i) for i in items if i is not None)
    key = lambda x: (x or 0) % 3
    return list(made), sorted((i for i in items if i), key=key), bool(items) and not n
"""

CALLS = [
    *(("compared", args) for args in itertools.product((0, 1), (1, 2), (1, 2))),
    *(("guarded", args) for args in itertools.product(([], [1, 2, 3], [3, 3, 1, 9], [7]), (0, 3), ({}, {3: 2, 1: 1}))),
    *(("impure", args) for args in itertools.product(([0], [5], [1, 2, 9, 0]), (0, 2, 6))),
    *(("iterated", args) for args in itertools.product(([], [1], [4, 4, 6, 2], [0, 3, 5]), (0, 3, 4))),
    *(("missing", args) for args in itertools.product(([], [1, 2], [3, -1, 3]), (1, 2))),
    *(("cut", args) for args in itertools.product(([], [1, 2, 3]), (0, 1), (0, 2))),
    *(("raising", args) for args in itertools.product(([], [1, 2], [4, 8, 0]), (0, 1, 2, 5))),
    *(("floats", args) for args in itertools.product((0, -0.0, 1.5, math.nan), (0.0, 2))),
    *(("bits", (n,)) for n in (0, 1, 6, 255)),
    *(("later", args) for args in itertools.product(([], [0, 1, 2, 5], [None, 4]), (0, 2))),
]


def _said(module, name, args):
    import copy

    args = copy.deepcopy(args)
    try:
        return repr(getattr(module, name)(*args)), repr(args)
    except Exception as error:
        return type(error).__name__, str(error), repr(args)


def _checks(module):
    """One for each call: it notices whatever is not as on unmutated code."""
    out = []
    for number, (name, args) in enumerate(CALLS):
        usual = _said(module, name, args)

        def run(name=name, args=args, usual=usual):
            now = _said(module, name, args)
            return [] if now == usual else [("", f"{now} != {usual}")]

        out.append(Says(f"{name} {number}", run))
    return out


@pytest.fixture
def screened(tmp_path, monkeypatch):
    """The sample's checks, its mutants, and what screening says of them."""
    module, program = live(tmp_path, CODE, monkeypatch)
    [source] = program.sources.values()
    sites = {site.id: site for site in operators.sites(source)}
    checks = _checks(module)
    notes: list[str] = []
    numbered = dict(enumerate(checks))
    found = scout.screen(numbered, list(sites.values()), program, lambda: None, lambda: None, note=notes.append)
    assert not notes
    return module, program, sites, checks, found


def test_no_check_notices_a_mutant_that_changes_no_value_in_it(screened):
    _, program, sites, checks, found = screened
    running = {name: [n for n, (function, _) in enumerate(CALLS) if f":{function}" in name] for name in sites}

    def noticed():
        wrong, left_out = [], 0
        for name in found:
            undo = sites[name].apply("", program)
            for n in set(running[name]) - found[name]:
                left_out += 1
                if run_step(Step(n, 1000, 1.0, 1.0), checks, program.budget):
                    wrong.append((name, CALLS[n]))
            undo()
        return wrong, left_out

    wrong, left_out = forked(noticed, 60.0)
    assert not wrong
    assert left_out > 400


def test_most_mutants_of_expressions_can_be_screened(screened):
    _, _, sites, _, found = screened
    of_expressions = [name for name, site in sites.items() if site.stmt is not None]
    assert len(set(of_expressions) & set(found)) > 0.9 * len(of_expressions)


def _infected(screened, part: str) -> dict[str, int]:
    return {name: len(numbers) for name, numbers in screened[-1].items() if part in name}


def test_what_is_evaluated_twice_is_pure(screened):
    """`stack.pop()` is called once: its value is kept, and what lies to its right is not evaluated at all."""
    _, _, sites, _, found = screened
    whole = [s for s in sites.values() if s.function.qualname == "impure" and s.op == "negate"]
    kept_out = [s.change.original for s in whole if s.id not in found]
    assert kept_out == [
        "_push(log, 1) + len(stack) > limit and _push(log, 2) > 1",
        "not stack.pop() or _push(log, 3) == 99",
        "stack and stack.pop() > limit",
    ]


def test_the_unmutated_program_runs_as_ever_under_the_probes(screened):
    _, program, sites, checks, _ = screened

    def work():
        Screening(program, list(sites.values()))
        return [check.id for check in checks if check.run()]

    assert forked(work, 60.0) == []


@pytest.mark.parametrize(
    ("one", "two", "fresh", "alike"),
    [
        (1, 1, False, True),
        (1, True, False, False),
        (1, 1.0, False, False),
        (0.0, -0.0, False, False),
        (math.nan, float("nan"), False, False),
        ("a" * 2000, "a" * 2000 + "", False, True),
        (range(0), range(1, 1), False, True),
        ((1, (2, "x")), (1, (2, "x")), False, True),
        ((1, []), (1, []), False, False),
        ([1, 2], [1, 2], False, False),
        ([1, 2], [1, 2], True, True),
        ([1, []], [1, []], True, False),
        ({1}, {1}, True, False),
        (collections.OrderedDict(), collections.OrderedDict(), True, False),
    ],
)
def test_alike_is_what_no_program_can_tell_apart(one, two, fresh, alike):
    assert same(one, two, fresh) is alike


def test_a_mutant_that_agrees_too_often_is_run(tmp_path, monkeypatch):
    module, program = live(
        tmp_path, "def f(n):\n    for i in range(n):\n        if i >= 0:\n            pass\n", monkeypatch
    )
    [source] = program.sources.values()
    sites = [s for s in operators.sites(source) if s.op == "compare"]
    monkeypatch.setattr(infection, "PATIENCE", 10)
    checks = {n: Says(str(n), lambda n=n: module.f(n)) for n in (1, 5, 9, 10, 50)}
    [numbers] = scout.screen(checks, sites, program, lambda: None, lambda: None).values()
    assert numbers == {1, 5, 9, 10, 50}  # i >= 0 is not i > 0 at the first turn
    sites = [s for s in operators.sites(source) if s.op == "drop-guard"]
    [numbers] = scout.screen(checks, sites, program, lambda: None, lambda: None).values()
    assert numbers == {10, 50}


def test_checks_that_fork_or_end_the_process_or_fail_are_never_left_out(tmp_path, monkeypatch):
    import os

    module, program = live(tmp_path, "def f(n):\n    return n > 0\n", monkeypatch)
    sites = list(operators.sites(program.sources[module.__name__]))

    def forks():
        module.f(5)
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    checks = {
        0: Says("plain", lambda: module.f(5) and None),
        1: Says("fails", lambda: [("", "as always")] if module.f(5) else []),
        2: Says("forks", forks),
    }
    found = scout.screen(checks, sites, program, lambda: None, lambda: None)
    assert {name.split(":")[2]: set(numbers) for name, numbers in found.items()} == {
        "compare": {1, 2},
        "constant": {1, 2},
    }
    notes: list[str] = []
    ends = {0: checks[0], 1: Says("ends", lambda: os._exit(3)), 2: checks[0], 3: checks[0]}
    found = scout.screen(ends, sites, program, lambda: None, lambda: None, workers=2, note=notes.append)
    assert set(found.values()) == {frozenset({1, 3})}
    assert notes == ["screening: it ended by itself"]
