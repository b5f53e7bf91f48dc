"""Likely survivors run together: what a few of the best checks do not notice, hardly any check does.

Mutants of different places go into the program at once and meet the checks that are left. A check that holds then
has noticed none of them. One that fails is run on each of them alone; whoever it notices is run once more, by itself,
from the beginning. Two mutants that hide each other would pass: the second run of survivors, each in an interpreter
of its own, is what they are called survivors for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.mutate.budget import Budget
from harness.mutate.checks import Check
from harness.mutate.jobs import Job, Report, Step, Undo
from harness.mutate.pool import Pool
from harness.mutate.program import Program
from harness.mutate.pursuit import run_step
from harness.mutate.sites import Site

ENOUGH = 10
"""So many checks a mutant meets alone before it is taken for a likely survivor."""
CROWD = 24
"""At most so many run together."""


class Crowd:
    """Several mutants in one program. `names` are those in it now."""

    def __init__(self, program: Program, sites: Mapping[str, Site]) -> None:
        self._program, self._sites = program, sites
        self._undo: list[Undo] = []

    def put(self, names: Iterable[str]) -> None:
        """These and no others."""
        self.clear()
        sites = [self._sites[name] for name in names]
        edited = [edit for site in sites for edit in site.edit()]
        try:
            for source, function in {id(s.function): (s.source, s.function) for s in sites}.values():
                self._undo.append(self._program.swap(source, function, function.node))
        finally:
            for e in reversed(edited):
                setattr(e.holder, e.name, e.new)

    def clear(self) -> None:
        """None of them."""
        while self._undo:
            self._undo.pop()()

    def apply(self) -> Undo:
        """All of them."""
        self.put(self._sites)
        return self.clear

    def meet(
        self, step: Step, checks: Sequence[Check], budget: Budget, tell: Callable[[Step], None], left: Sequence[str]
    ) -> list[str]:
        """Which of those `left`, which are in the program, a check notices; they go out of it."""
        if not run_step(step, checks, budget):
            return []
        seen = []
        for name in left:
            self.put([name])
            tell(step)
            if run_step(step, checks, budget):
                seen.append(name)
        self.put([name for name in left if name not in seen])
        return seen


def run(
    pool: Callable[[], Pool],
    jobs: Sequence[Job],
    program: Program,
    tick: Callable[[list[str]], None],
    deadline: float | None,
) -> Iterator[tuple[Job, Report]]:
    """Every job with its report. Jobs whose mutants are no `Site`s, or that want all checks, run alone as they are."""
    sites = {job.id: job.site for job in jobs if job.site is not None and not job.everything and not job.breaks}
    first: dict[str, tuple[Job, Report]] = {}
    briefly = [dataclasses.replace(job, enough=ENOUGH) if job.id in sites else job for job in jobs]
    for job, report in pool().run(briefly, tick, deadline):
        if report.ending == "suspect":
            first[job.id] = job, report
        else:
            yield job, report
    rest = {name: _rest(job, report) for name, (job, report) in first.items()}
    alone: list[Job] = []
    crowds = []
    for names in crowded([sites[name] for name in first]):
        if len(names) == 1:
            alone.append(rest[names[0]])
        else:
            crowds.append(_crowd([rest[name] for name in names], Crowd(program, {n: sites[n] for n in names})))
    for crowd, report in pool().run(crowds, tick, deadline):
        noticed = dict(report.parts)
        for member in crowd.members:
            check = noticed.get(member.id, -1) if report.ending == "survived" else -1
            if report.ending == "survived" and check < 0:
                ran, share = member.steps, len(crowd.members)
                alike = Report("survived", ran=len(ran), seconds=report.seconds / share, cpu=report.cpu / share)
                yield member, _added(alike, first[member.id][1])
            else:
                steps = sorted(member.steps, key=lambda s: s.check != check)  # used at once
                alone.append(dataclasses.replace(member, steps=tuple(steps)))
    for job, report in pool().run(alone, tick, deadline):
        yield job, _added(report, first[job.id][1])


def _rest(job: Job, report: Report) -> Job:
    met = set(report.met)
    return dataclasses.replace(job, enough=0, steps=tuple(s for s in job.steps if s.check not in met))


def _added(report: Report, before: Report) -> Report:
    report.ran += before.ran
    report.seconds += before.seconds
    report.cpu += before.cpu
    return report


def _crowd(members: Sequence[Job], crowd: Crowd) -> Job:
    steps: dict[int, Step] = {step.check: step for job in members for step in job.steps}
    name = f"{members[0].id} and {len(members) - 1} more"
    order = tuple(sorted(steps.values(), key=lambda s: (s.heavy, s.cpu)))
    return Job(name, crowd.apply, order, group=members[0].group, members=tuple(members), crowd=crowd)


def crowded(sites: Sequence[Site]) -> list[list[str]]:
    """Groups of mutants that touch different places, those of one function near each other."""
    groups: list[tuple[list[str], dict[int, list[tuple[range, set[Any]]]]]] = []
    for site in sites:
        lines = range(min(site.lines.start, site.line), max(site.lines.stop, site.place.end_line + 1))
        touched = lines, {(id(e.holder), e.name) for e in site.change.edits}
        for names, taken in groups:
            others = taken.get(id(site.function), [])
            if len(names) < CROWD and site.source.name == names[0].partition(":")[0] and not _clash(touched, others):
                break
        else:
            names, taken = [], {}
            groups.append((names, taken))
        names.append(site.id)
        taken.setdefault(id(site.function), []).append(touched)
    return [names for names, _ in groups]


def _clash(one: tuple[range, set[Any]], others: Iterable[tuple[range, set[Any]]]) -> bool:
    lines, edits = one
    return any(edits & e or (lines.start < r.stop and r.start < lines.stop) for r, e in others)
