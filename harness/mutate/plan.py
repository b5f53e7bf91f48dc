"""What a mutation session is given, whom it tells, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.mutate import controls
from harness.mutate.baseline import Baseline
from harness.mutate.checks import Check
from harness.mutate.equivalent import Equivalents
from harness.mutate.jobs import Report
from harness.mutate.mutant import Mutant, Result


class CheckHost(Protocol):
    """The collected checks, and what a child does before and after it runs some."""

    checks: list[Check]

    def enter(self) -> None:
        """Prepare this process, a fresh child, for running checks."""
        ...

    def close(self) -> None:
        """Stop what is still running."""
        ...


class Screen(Protocol):
    """Who is told how the session goes (a progress bar, or nobody)."""

    def phase(self, name: str, total: int) -> None:
        """A new phase begins."""
        ...

    def running(self, ids: Sequence[str]) -> None:
        """These run now."""
        ...

    def reached(self, done: int) -> None:
        """So many of this phase are finished."""
        ...

    def done(self, result: Result | None = None) -> None:
        """One more is finished."""
        ...

    def line(self, text: str) -> None:
        """Something to tell the user."""
        ...


@dataclass(frozen=True)
class Plan:
    """What a session is to do. `budget_s` stops handing out mutants so many seconds after `began` (0: never).

    `began`, by time.monotonic, is when the session itself began where it is not told.
    `rerun` runs survivors again in fresh interpreters; None leaves that out. `failing` as in `controls.plan`.
    `elsewhere`: mutants that are not run, since nothing here shows them, with the lane that would.
    `places`: the functions that a catalogue mutant changes, `module:qualname`, where it runs only in the checks that
    run what it changes there, and in none where none does.
    `screen`: a mutant of an expression does not run in checks in which it changes no value, and likely survivors run
    together; without it every mutant runs by itself in all its checks.
    """

    mutants: Sequence[Mutant]
    workers: int = 1
    everything: bool = False
    use_cache: bool = True
    budget_s: float = 0.0
    began: float | None = None
    equivalents: Equivalents = field(default_factory=Equivalents)
    rerun: Callable[[Sequence[tuple[Mutant, list[str]]]], Iterator[tuple[str, Report]]] | None = None
    touched: Callable[[Mutant, Sequence[Check]], bool] | None = None
    extra: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    failing: str = ""
    places: Mapping[str, Sequence[str]] = field(default_factory=dict)
    screen: bool = True


@dataclass
class Outcome:
    """All results, in the order of the plan, and what was learned on the way.

    `skipped` counts mutants that no change touches, `left` those that were to be run and have no result.
    """

    results: list[Result]
    baseline: Baseline
    checks: Sequence[Check]
    controls: list[controls.Control]
    seconds: float
    mutating_s: float = 0.0
    workers: int = 1
    interrupted: bool = False
    skipped: int = 0
    left: int = 0
    notes: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)

    @property
    def rules(self) -> list[str]:
        """All rules that some check judges."""
        return sorted({r for c in self.checks for r in c.rules})
