"""What a run consists of: units of work that any process can do, and what each found."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.faults import Fault
from harness.places import Breaches, Place
from harness.rules import Rule, Verdict
from harness.scenario import Scenario
from harness.settings import Settings
from harness.suites import Book
from harness.versions import version_matches


@dataclass(frozen=True)
class Unit:
    """One scenario on one engine version; `sut` is "" for an engine-side scenario.

    `shard` (i, n) with n > 0 is fault exploration: every n-th fault plan from the i-th on. n = 0: the scenario alone.
    """

    scenario: str
    version: str
    tp: int
    sut: str = ""
    shard: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Cause:
    """A rule that the same history breaks, and that the finding follows from; `actual` is what its judge said."""

    rule: str
    actual: str


@dataclass(frozen=True)
class Finding:
    """What one rule says of one unit: the worst over its histories.

    The faults, the causes and the place are those of the history that decided; a place has only what is violated.
    """

    verdict: Verdict
    faults: tuple[Fault, ...] = ()
    histories: int = 1
    causes: tuple[Cause, ...] = ()
    place: Place | None = None


@dataclass
class UnitReport:
    """What a unit gave.

    `error` is one line when the harness broke, `trace` the traceback; `fired` the faults that met a call, as text;
    `raised` what the first refit raised in a scenario without any fault; `hung` where the client was when it did not
    come back; `fell` why the client's process ended with its engine; `policy` what the adapter declares; `breaches`
    what each history breaks, of those that break anything; `refits` how many refits there were, and `done` what the
    client did in them, as `Rule.speaks_of` counts it.
    """

    unit: Unit
    findings: dict[str, Finding] = field(default_factory=dict)
    calls: int = 0
    runs: int = 0
    fired: set[str] = field(default_factory=set)
    raised: str = ""
    fell: str = ""
    hung: str = ""
    policy: str = ""
    breaches: list[Breaches] = field(default_factory=list)
    refits: int = 0
    done: set[str] = field(default_factory=set)
    seconds: float = 0.0
    error: str = ""
    trace: str = ""


def units_of(settings: Settings, book: Book, lane_name: str, tp: int, *, shards: int = 1) -> list[Unit]:
    """Every unit of a run: explorations, the longest, in `shards` parts each, then the rest.

    Scenarios that kill an engine are last: only another one of them has to start a server again.
    """
    out: list[Unit] = []
    explored: list[Unit] = []
    for version in settings.versions:
        wanted = [scenario for scenario in book.scenarios.values() if _runs(settings, book, scenario, version)]
        for scenario in _sampled(settings, [s for s in wanted if s.fits(version, tp, lane_name)], f"{version}/tp{tp}"):
            for sut in settings.suts if scenario.side == "refit" else ("",):
                out.append(Unit(scenario.id, version, tp, sut))
                if scenario.explore and settings.exploration != "off" and not settings.faults:
                    explored += [Unit(scenario.id, version, tp, sut, (i, shards)) for i in range(shards)]
    return explored + sorted(out, key=lambda unit: book.scenarios[unit.scenario].fatal)


def judged(settings: Settings, book: Book, scenario: Scenario, version: str) -> list[Rule]:
    """The rules whose judges see this scenario's history in this run."""
    if settings.scenarios and scenario.id not in settings.scenarios:
        return []
    rules = (book.rules[rule] for rule in sorted(scenario.rules) if settings.wants(rule))
    return [rule for rule in rules if version_matches(version, rule.versions)]


def explores(settings: Settings) -> bool:
    """Whether faults meet the client in this run: explored ones or given ones."""
    return settings.exploration != "off" or bool(settings.faults)


def invariants_judged(settings: Settings, book: Book, scenario: Scenario) -> list[Rule]:
    """The invariants that faulted runs of this scenario are held to in this run."""
    if not explores(settings) or not scenario.explore or (settings.scenarios and scenario.id not in settings.scenarios):
        return []
    return [book.rules[rule] for rule in sorted(book.invariants) if settings.wants(rule)]


def _runs(settings: Settings, book: Book, scenario: Scenario, version: str) -> bool:
    if settings.side not in (None, scenario.side):
        return False
    return bool(invariants_judged(settings, book, scenario) or judged(settings, book, scenario, version))


def _sampled(settings: Settings, scenarios: list[Scenario], engine: str) -> list[Scenario]:
    """All that live, and of those that kill as many as are wanted: others on another engine, so that two see more."""
    fatal = sorted(scenario.id for scenario in scenarios if scenario.fatal)
    if settings.fatal_sample is None or settings.fatal_sample >= len(fatal):
        return scenarios
    kept = random.Random(f"{settings.seed}/{engine}").sample(fatal, settings.fatal_sample)
    return [scenario for scenario in scenarios if not scenario.fatal or scenario.id in kept]


def worse(old: Finding | None, new: Finding) -> Finding:
    """The worse of two findings; exercised counts and histories add up.

    Of two violations the one that follows from no other rule says more, and then one where nothing was faulted.
    """
    if old is None:
        return new
    order: Sequence[str] = ("violated", "held", "inconclusive", "unsupported")
    first, second = sorted((old, new), key=lambda f: (order.index(f.verdict.status), bool(f.causes), *_faulted(f)))
    best = first.verdict
    exercised = best.exercised + second.verdict.exercised
    verdict = Verdict(best.status, exercised, best.allowed, best.actual, best.where, best.missing)
    return Finding(verdict, first.faults, old.histories + new.histories, first.causes, first.place)


def _faulted(finding: Finding) -> tuple[bool, bool]:
    place = finding.place
    return (False, False) if place is None else (place.after_fault, bool(finding.faults))
