"""Measures the baseline in a child of the warm process, and survives a check that kills or hangs it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from harness.mutate import jobs
from harness.mutate.baseline import Baseline, measure, warm
from harness.mutate.budget import Budget
from harness.mutate.checks import Check, Finding
from harness.mutate.forked import forked
from harness.mutate.source import Source

SILENCE_S = 120.0
ATTEMPTS = 5


class _Gone:
    """A check that ended the scout; from then on it only says so."""

    def __init__(self, check: Check, text: str) -> None:
        self.id, self.rules, self.path, self._text = check.id, check.rules, check.path, text

    def run(self) -> list[Finding]:
        return [Finding("", self._text, crash=True)]


def baseline(
    checks: Sequence[Check],
    sources: Sequence[Source],
    budget: Budget,
    enter: Callable[[], None],
    leave: Callable[[], None],
    tick: Callable[[int], None] = lambda done: None,
    forget: Callable[[], None] = lambda: None,
) -> Baseline:
    """Measure all checks. One that ends or hangs the process unmutated is marked as of no use."""
    left: list[Check] = list(checks)
    for _ in range(ATTEMPTS):
        progress = jobs.Progress()

        def work(progress: jobs.Progress = progress) -> Baseline:
            enter()
            found = measure(left, sources, budget, lambda i: progress.step(i, i), forget)
            with contextlib.suppress(Exception):
                leave()
            return found

        def alive(progress: jobs.Progress = progress) -> int:
            at, _, _ = progress.read()
            tick(at)
            return at

        value = forked(work, SILENCE_S, alive)
        at, _, _ = progress.read()
        progress.close()
        if isinstance(value, Baseline):
            warm_up(value)
            return value
        if not 0 <= at < len(left):
            break
        left[at] = _Gone(left[at], f"it ends the process on unmutated code ({value})")
    raise RuntimeError("the unmutated run ends its process again and again")


def warm_up(found: Baseline) -> None:
    """Import here what running the checks imported in the child, so that no later child has to."""
    list(warm(found.modules))
