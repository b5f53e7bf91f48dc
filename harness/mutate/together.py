"""Likely survivors run together: what a few of the best checks do not notice, hardly any check does.

Mutants of different places go into the program at once and meet the checks that are left. A check that holds then
has noticed none of them. One that fails is run on each half of them, and so on; whoever it notices is run once more,
by itself, from the beginning. Two mutants that hide each other would pass: the second run of survivors, each in an
interpreter of its own, is what they are called survivors for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from harness.mutate.budget import Budget
from harness.mutate.checks import Check
from harness.mutate.jobs import Job, Report, Step, Undo
from harness.mutate.pool import Pool
from harness.mutate.program import Program, Redo
from harness.mutate.pursuit import run_step
from harness.mutate.sites import Site

ENOUGH = 5
"""So many checks a mutant meets alone before it is taken for a likely survivor."""
CROWD = 32
"""At most so many run together."""


class Crowd:
    """Several mutants in one program. `names` are those in it now, `runs` the checks that run each (of others: all).

    What a function becomes with some of them is compiled once, however often they come and go.
    """

    def __init__(
        self, program: Program, sites: Mapping[str, Site], runs: Mapping[str, frozenset[int]] = MappingProxyType({})
    ) -> None:
        self._program, self._sites, self._runs = program, sites, runs
        self._there: dict[int, tuple[frozenset[str], Undo]] = {}
        self._known: dict[frozenset[str], Redo] = {}
        self.names: frozenset[str] = frozenset()

    def put(self, names: Iterable[str]) -> None:
        """These and no others."""
        self.names = frozenset(names)
        wanted: dict[int, list[Site]] = {}
        for name in sorted(self.names):
            wanted.setdefault(id(self._sites[name].function), []).append(self._sites[name])
        for function in [f for f in self._there if self._there[f][0] != _names(wanted.get(f, ()))]:
            self._there.pop(function)[1]()
        for function, sites in wanted.items():
            if function not in self._there:
                self._there[function] = _names(sites), self._in(sites)

    def _in(self, sites: Sequence[Site]) -> Undo:
        """All of these, which change one function."""
        names = _names(sites)
        if names not in self._known:
            edited = [edit for site in sites for edit in site.edit()]
            try:
                self._known[names] = self._program.made(sites[0].source, sites[0].function, sites[0].function.node)
            finally:
                for e in reversed(edited):
                    setattr(e.holder, e.name, e.new)
        return self._known[names]()

    def clear(self) -> None:
        """None of them."""
        self.put(())

    def apply(self) -> Undo:
        """All of them."""
        self.put(self._sites)
        return self.clear

    def meet(
        self, step: Step, checks: Sequence[Check], budget: Budget, tell: Callable[[Step], None], left: Sequence[str]
    ) -> list[str]:
        """Which of those `left`, which are in the program, a check notices; they go out of it."""

        def fails() -> bool:
            tell(step)
            return bool(run_step(step, checks, budget))

        def noticed(names: Sequence[str]) -> list[str]:
            """Those of `names`, with all of which it fails."""
            if len(names) == 1:
                return list(names)
            half = len(names) // 2
            self.put(names[:half])
            seen = noticed(names[:half]) if fails() else []
            if seen:
                self.put(names[half:])
            if not seen or fails():  # where it is none of the others it is one of these
                seen += noticed(names[half:])
            return seen

        able = [name for name in left if name not in self._runs or step.check in self._runs[name]]
        if not able or not fails():
            return []
        seen = noticed(able)
        self.put([name for name in left if name not in seen])
        return seen


def _names(sites: Iterable[Site]) -> frozenset[str]:
    return frozenset(site.id for site in sites)


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
    for names in crowded([(sites[name], rest[name].steps) for name in first]):
        if len(names) == 1:
            alone.append(rest[names[0]])
        else:
            runs = {name: frozenset(step.check for step in rest[name].steps) for name in names}
            crowd = Crowd(program, {name: sites[name] for name in names}, runs)
            crowds.append(_crowd([rest[name] for name in names], crowd))
    for job, report in pool().run(crowds, tick, deadline):
        noticed = dict(report.parts)
        for member in job.members:
            check = noticed.get(member.id, -1) if report.ending == "survived" else -1
            if report.ending == "survived" and check < 0:
                ran, share = member.steps, len(job.members)
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


def crowded(mutants: Sequence[tuple[Site, Sequence[Step]]]) -> list[list[str]]:
    """Groups of mutants that touch different places, each in the one to whose checks its own add the least."""
    groups: list[_Group] = []
    for site, steps in sorted(mutants, key=lambda m: -_cost(m[1])):
        lines = range(min(site.lines.start, site.line), max(site.lines.stop, site.place.end_line + 1))
        touched = lines, {(id(e.holder), e.name) for e in site.change.edits}
        checks = {step.check: step for step in steps}
        able = [g for g in groups if len(g.names) < CROWD and not _clash(touched, g.taken.get(id(site.function), ()))]
        if able:
            group = min(able, key=lambda g: _cost(step for n, step in checks.items() if n not in g.checks))
        else:
            group = _Group()
            groups.append(group)
        group.names.append(site.id)
        group.checks.update(checks)
        group.taken.setdefault(id(site.function), []).append(touched)
    return [group.names for group in groups]


@dataclasses.dataclass
class _Group:
    names: list[str] = dataclasses.field(default_factory=list)
    checks: dict[int, Step] = dataclasses.field(default_factory=dict)
    taken: dict[int, list[tuple[range, set[Any]]]] = dataclasses.field(default_factory=dict)


def _cost(steps: Iterable[Step]) -> float:
    return sum(step.cpu for step in steps)


def _clash(one: tuple[range, set[Any]], others: Iterable[tuple[range, set[Any]]]) -> bool:
    lines, edits = one
    return any(edits & e or (lines.start < r.stop and r.start < lines.stop) for r, e in others)
