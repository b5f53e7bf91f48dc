"""Which checks a mutant need not meet, since it changes no value in them; and the mutants that need meet none."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.mutate import scout
from harness.mutate.controls import Control, sample
from harness.mutate.infection import Infected
from harness.mutate.jobs import Job, Step
from harness.mutate.program import Program

WORTH = 200.0
"""Screening costs a few runs of all checks and saves runs of survivors, which share most of theirs with others: it is
left out where the mutants, if each met all its checks alone, would cost less than so many runs of all."""
PAIRS = 3
SAID = "it changes no value in any check that runs it"


@dataclass(frozen=True)
class Screened:
    """What a screening of the checks `ran` found."""

    infected: Infected = field(default_factory=dict)
    ran: frozenset[int] = frozenset()

    def split(self, job: Job) -> tuple[Job, tuple[Step, ...]]:
        """The job without the checks that cannot notice its mutant, and those."""
        if job.id not in self.infected:
            return job, ()
        seen = self.infected[job.id]
        kept = tuple(s for s in job.steps if s.check in seen or s.check not in self.ran)
        left_out = tuple(s for s in job.steps if s.check not in seen and s.check in self.ran)
        declared = sum(s.check in {k.check for k in kept} for s in job.steps[: job.declared])
        return dataclasses.replace(job, steps=kept, declared=declared), left_out


def screened(
    jobs: Sequence[Job],
    host: Any,
    program: Program,
    workers: int,
    *,
    begin: Callable[[int], None],
    tick: scout.Tick,
    note: Callable[[str], None],
) -> Screened:
    """In which checks of `host` the mutants of expressions change anything; nothing where that would cost too much."""
    able = [job for job in jobs if job.site is not None]
    numbers = worth(able)
    if not numbers:
        return Screened()
    begin(len(numbers))
    checks = {i: host.checks[i] for i in numbers}
    sites = [job.site for job in able]
    infected = scout.screen(checks, sites, program, host.enter, host.close, tick, workers, note)
    return Screened(infected, frozenset(numbers))


def worth(jobs: Sequence[Job]) -> list[int]:
    """The checks to screen for these jobs; none when that costs more than it can save."""
    costs = {s.check: s.cpu for job in jobs for s in job.steps if not s.heavy}
    whole = sum(s.cpu for job in jobs for s in job.steps if not s.heavy)
    return sorted(costs) if whole > WORTH * sum(costs.values()) else []


def controls(left_out: Sequence[tuple[Job, tuple[Step, ...]]]) -> list[tuple[Control, Job]]:
    """A sample of mutants, each to be run in a few checks that were left out: none may notice."""
    some = sorted((x for x in left_out if x[1]), key=lambda x: zlib.crc32(x[0].id.encode()))
    out = []
    for job, steps in some[: sample(len(left_out))]:
        quick = sorted(steps, key=lambda s: s.cpu)[:PAIRS]
        control = Control(f"screened {job.id}", "survived", job.apply, [s.check for s in quick], screened=True)
        out.append(
            (control, dataclasses.replace(job, id=control.id, steps=tuple(quick), breaks=frozenset(), declared=0))
        )
    return out
