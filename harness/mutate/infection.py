"""Screening: in which checks does a mutant ever change a value? A check in which it never does cannot notice it.

All mutants of expressions are evaluated beside the original in one run of the unmutated program: same state, same
place. Where value, type and exception are the same every time, the mutated program does in that check, step for step,
what the unmutated one does ("equivalence modulo states"), and the check need not run on it. What this leaves aside:
the identity of equal numbers and texts, properties and comparison methods that change something, and checks that differ
from one run to the next.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from harness.mutate import pure
from harness.mutate.baseline import run_one
from harness.mutate.budget import Budget
from harness.mutate.checks import Check
from harness.mutate.jobs import Undo
from harness.mutate.probes import AGREED, EMPTY, Probe, Probes
from harness.mutate.program import Program
from harness.mutate.pure import Unsure
from harness.mutate.sites import Site

PATIENCE = 5000
"""So often a mutant is evaluated in one check; if it agrees so often, it counts as one that differs."""
_ENDLESS = 1 << 60
_SCALAR = (int, bool, str, bytes, type(None), range, type(Ellipsis))
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_SIZED: tuple[type, ...] = (list, tuple, dict, set, frozenset, str, bytes, range, deque, *_VIEWS)

Infected = dict[str, frozenset[int]]
"""By mutant: the checks in which it changes a value. A mutant that could not be evaluated is missing."""


def same(one: Any, two: Any, fresh: bool = False) -> bool:
    """No program can tell them apart, but by asking which of two equal numbers or texts it is."""
    if one is two:
        return True
    kind = type(one)
    if kind is not type(two):
        return False
    if kind in _SCALAR:
        return bool(one == two)
    if kind is float:
        return bool(one == two) and math.copysign(1.0, one) == math.copysign(1.0, two)
    if kind is tuple or (fresh and kind is list):
        return len(one) == len(two) and all(map(same, one, two))
    return False


def empty(found: Any) -> Any:
    """`found`, when a loop over it takes no turn."""
    if type(found) not in _SIZED or len(found):
        raise Unsure
    return found


def agreed(value: Any, target: Any, one: Any, two: Any) -> Any:
    """`value`, when adding it in two ways gives the same, and nothing is changed in place."""
    if type(target) not in (int, float, str, bytes, tuple) or not same(one, two):
        raise Unsure
    return value


class _Seen:
    """What one probe sees in the check that runs now."""

    def __init__(self, probe: Probe, screen: Screening) -> None:
        self._screen = screen
        self.mutants = probe.mutants
        self._truth, self._fresh, self._whole = probe.truth, probe.fresh, int(probe.whole)
        self._begun = repeat(None, _ENDLESS)
        self._done = 0
        self._open = 0
        self._check = -1
        self._left = 0
        self.alike: list[int] = []
        setattr(builtins, probe.begin, self._begun.__next__)
        setattr(builtins, probe.see, self.differs if isinstance(probe.root, ast.Try) else self.see)

    def see(self, _: Any, value: Any, make: Callable[[Any], tuple[Callable[[], Any], ...]]) -> Any:
        """`value`, which the original expression gave; the mutated ones that still agree are evaluated beside it."""
        self._done += 1
        screen = self._screen
        if self._check != screen.check:
            self._begin()
        if not self.alike:
            return value
        if screen.busy:
            if screen.busy != threading.get_ident():
                self.alike = []  # another thread is looking: this one cannot
            return value
        self._left -= 1
        if not self._left:
            self.alike = []
            return value
        screen.busy = threading.get_ident()
        try:
            thunks = make(value)
            if self._whole and not self._agrees(value, thunks[0]):
                self.alike = []
            for i in tuple(self.alike):
                if not self._agrees(value, thunks[self._whole + i]):
                    self.alike.remove(i)
        finally:
            screen.busy = 0
        return value

    def _agrees(self, value: Any, thunk: Callable[[], Any]) -> bool:
        try:
            other = thunk()
            return bool(value) == bool(other) if self._truth else same(value, other, self._fresh)
        except Exception:
            return False

    def differs(self) -> None:
        """All mutants are seen in this check."""
        if self._check != self._screen.check:
            self._begin()
        self.alike = []

    def _begin(self) -> None:
        self._check, self._left = self._screen.check, PATIENCE
        self.alike = list(range(len(self.mutants)))
        self._screen.touched.append(self)

    def end(self) -> None:
        """A check has ended: an expression that was begun and gave no value raised, and its mutants may not."""
        unfinished = _ENDLESS - self._begun.__length_hint__() - self._done  # type: ignore[attr-defined]
        if unfinished != self._open:
            self._open = unfinished
            self.differs()


class Screening:
    """The functions of `sites` with probes in place; `remove` takes them out."""

    def __init__(self, program: Program, sites: Sequence[Site]) -> None:
        self.check = 0
        self.busy = 0
        self.touched: list[_Seen] = []
        self._seen: list[_Seen] = []
        self._forked = False
        self._undo: list[Undo] = []
        self._program = program
        self._modules = {site.source.name for site in sites}
        numbers = itertools.count()
        pure.provide()
        for name, guard in ((EMPTY, empty), (AGREED, agreed)):
            setattr(builtins, name, guard)
        for group in by_function(sites).values():
            source, function = group[0].source, group[0].function
            shadowed = frozenset(vars(sys.modules[source.name])) & pure.BUILTINS
            probes = Probes(function.node, group, numbers, shadowed)
            undo = program.probe(source, function, probes.rewritten()) if probes.all else []
            if undo:
                self._undo += undo
                self._seen += [_Seen(probe, self) for probe in probes.all]

    def remove(self) -> None:
        """The functions are as they were."""
        while self._undo:
            self._undo.pop()()

    def _forks(self) -> None:
        self._forked = True

    def run(
        self,
        checks: Mapping[int, Check],
        budget: Budget,
        tell: Callable[[int], None] = lambda i: None,
        forget: Callable[[], None] = lambda: None,
    ) -> Infected:
        """Run the checks, by number, and say which mutants change a value in which. In a process of its own."""
        os.register_at_fork(before=self._forks)
        found: dict[str, set[int]] = {name: set() for seen in self._seen for name in seen.mutants}
        with self._program.computing(self._modules):
            for number, check in checks.items():
                tell(number)
                self.check += 1
                self.touched, self._forked = [], False
                forget()
                failed = bool(run_one(check, budget).findings) or self._forked
                for seen in self._seen:
                    seen.end()
                    if failed:  # under the probes, or it runs code where no probe can tell
                        seen.differs()
                for seen in self.touched:
                    for i in set(range(len(seen.mutants))).difference(seen.alike):
                        found[seen.mutants[i]].add(number)
        return {name: frozenset(numbers) for name, numbers in found.items()}


def by_function(sites: Sequence[Site]) -> dict[int, list[Site]]:
    """Mutants that change the same function."""
    out: dict[int, list[Site]] = {}
    for site in sites:
        out.setdefault(id(site.function), []).append(site)
    return out
