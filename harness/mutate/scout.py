"""Measures the baseline, and screens, in children of the warm process; survives a check that kills or hangs one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.mutate import jobs
from harness.mutate.baseline import Baseline, measure, warm
from harness.mutate.checks import Check, Finding, one_line
from harness.mutate.forked import Forked
from harness.mutate.infection import Infected, Screening
from harness.mutate.marks import Marks
from harness.mutate.program import Program
from harness.mutate.sites import Site

SILENCE_S = 120.0
ATTEMPTS = 5
Part = tuple[int, ...]
"""The numbers of the checks that one child runs."""
Tick = Callable[[int, list[int]], None]
"""Told how many checks were begun, and which run now."""


class _Gone:
    """A check that ended the scout; from then on it only says so."""

    def __init__(self, check: Check, text: str) -> None:
        self.id, self.rules, self.path, self._text = check.id, check.rules, check.path, text

    def run(self) -> list[Finding]:
        return [Finding("", self._text, crash=True)]


def baseline(
    checks: Sequence[Check],
    program: Program,
    enter: Callable[[], None],
    leave: Callable[[], None],
    tick: Tick = lambda done, at: None,
    workers: int = 1,
) -> Baseline:
    """Measure all checks. One that ends or hangs the process unmutated is marked as of no use."""
    left: list[Check] = list(checks)
    parts = by_file(checks, workers)
    found: dict[Part, Baseline] = {}
    marks = Marks(program)

    def work(part: Part, tell: Callable[[int], None]) -> Baseline:
        return measure([left[i] for i in part], program, marks, lambda n: tell(part[n]))

    try:
        for _ in range(ATTEMPTS):
            for part, value, at in _together([p for p in parts if p not in found], work, enter, leave, tick):
                if isinstance(value, Baseline):
                    found[part] = value
                elif at in part:
                    left[at] = _Gone(left[at], f"it ends the process on unmutated code ({value})")
                else:
                    raise RuntimeError(f"the unmutated run cannot be measured: {value}")
            if len(found) == len(parts):
                whole = merged([(part, found[part]) for part in parts], len(checks))
                warm_up(whole)
                return whole
        raise RuntimeError("the unmutated run ends its process again and again")
    finally:
        marks.remove()


def screen(
    checks: Mapping[int, Check],
    sites: Sequence[Site],
    program: Program,
    enter: Callable[[], None],
    leave: Callable[[], None],
    tick: Tick = lambda done, at: None,
    workers: int = 1,
    note: Callable[[str], None] = lambda text: None,
) -> Infected:
    """Which of the mutants change a value in which of the checks; checks of a child that ends count for all."""

    screening = Screening(program, sites)

    def work(part: Part, tell: Callable[[int], None]) -> Infected:
        return screening.run({i: checks[i] for i in part}, program.budget, tell, program.forget)

    parts = [part for n in range(workers) if (part := tuple(checks)[n::workers])]
    try:
        told = list(_together(parts, work, enter, leave, tick))
    finally:
        screening.remove()
    known = [value for _, value, _ in told if isinstance(value, dict)]
    for text in {value for _, value, _ in told if not isinstance(value, dict)}:
        note(f"screening: {text}")
    lost = frozenset(i for part, value, _ in told if not isinstance(value, dict) for i in part)
    names = {name for value in known for name in value}
    return {name: lost.union(*(value.get(name, frozenset()) for value in known)) for name in names}


def _together(
    parts: Sequence[Part],
    work: Callable[[Part, Callable[[int], None]], Any],
    enter: Callable[[], None],
    leave: Callable[[], None],
    tick: Tick,
) -> Sequence[tuple[Part, Any, int]]:
    """`work` on every part, each in a child; with what it gave comes the check that it was at."""
    progress = [jobs.Progress() for _ in parts]
    children: list[Forked] = []

    def begin(part: Part, at: jobs.Progress) -> Callable[[], Any]:
        def run() -> Any:
            enter()
            done = iter(range(len(part)))
            try:
                found = work(part, lambda i: at.step(i, next(done, len(part))))
            except Exception as error:
                return one_line(error)
            with contextlib.suppress(Exception):
                leave()
            return found

        return run

    def alive() -> list[tuple[int, int, int]]:
        now = [p.read() for p in progress]
        tick(sum(ran for _, ran, _ in now), [check for check, _, _ in now if check >= 0])
        return now

    try:
        children += [Forked(begin(part, at)) for part, at in zip(parts, progress, strict=True)]
        values = [child.value(SILENCE_S, alive) for child in children]
        return [(part, value, at.read()[0]) for part, value, at in zip(parts, values, progress, strict=True)]
    finally:
        for child in children:
            child.close()
        for at in progress:
            at.close()


def by_file(checks: Sequence[Check], workers: int) -> list[Part]:
    """At most `workers` parts of about the same size, each of whole files: what a file sets up once is set up once."""
    files: dict[str, list[int]] = {}
    for i, check in enumerate(checks):
        files.setdefault(check.path, []).append(i)
    parts: list[list[int]] = [[] for _ in range(min(workers, len(files)))]
    for numbers in sorted(files.values(), key=len, reverse=True):
        min(parts, key=len).extend(numbers)
    return [tuple(sorted(part)) for part in parts]


def merged(parts: Sequence[tuple[Part, Baseline]], checks: int) -> Baseline:
    """What the parts measured, as one."""
    at = {number: (found, n) for part, found in parts for n, number in enumerate(part)}
    return Baseline(
        [at[i][0].measured[at[i][1]] for i in range(checks)],
        [at[i][0].lines[at[i][1]] for i in range(checks)],
        sorted({name for _, found in parts for name in found.modules}),
    )


def warm_up(found: Baseline) -> None:
    """Import here what running the checks imported in the child, so that no later child has to."""
    list(warm(found.modules))
