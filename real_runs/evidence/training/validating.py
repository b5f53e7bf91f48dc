"""The verdict over a training run's evidence, and what it measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from real_runs.evidence.training import metrics
from real_runs.evidence.training.checks import CHECKS
from real_runs.evidence.training.refusal import Refusal
from real_runs.evidence.training.run import TrainingRun, Unreadable

UNREADABLE = "EVID-20"
"""What cannot be read at all has no exit and no times either."""


MOST_LINES = 100
"""Of one rule; more are counted."""


def refusals(run: TrainingRun) -> list[Refusal]:
    """What is wrong; empty for evidence that stands. A file that cannot be read is told once, and of one rule the first
    `MOST_LINES` reasons are told and the others counted."""
    try:
        _ = run.told, run.logs, run.series, run.value_checks, run.seen
    except Unreadable as error:
        return [Refusal(UNREADABLE, str(error))]
    return [Refusal(check.rule, line) for check in CHECKS for line in _first(check.find(run))]


def _first(lines: Iterator[str]) -> Iterator[str]:
    yield from islice(lines, MOST_LINES)
    more = sum(1 for _ in lines)
    if more:
        yield f"and {more} more reasons"


@dataclass(frozen=True)
class Measured:
    """What a good run says: seconds of the first refit and the median of the later ones; means by windows of steps."""

    exit_code: int
    steps: int
    refits: int
    first_s: float
    steady_s: float | None
    windows: dict[str, list[float]]
    packages: dict[str, int]


def measured(run: TrainingRun) -> Measured:
    """Of a run without refusals."""
    expected = run.told.expected
    seconds = [float(one.fields["duration_s"]) for one in run.marked("REFIT_SUCCESS")]
    names = [metrics.LOSS, metrics.GATE, *(name for name in expected.series if name == metrics.REWARD)]
    return Measured(
        exit_code=run.told.exit_code,
        steps=expected.steps,
        refits=len(seconds),
        first_s=seconds[0],
        steady_s=statistics.median(seconds[1:]) if len(seconds) > 1 else None,
        windows={name: metrics.windows(metrics.numbers(run.series[name]), expected.window) for name in names},
        packages={name: len(one.packages) for name, one in sorted(run.told.environments.items())},
    )
