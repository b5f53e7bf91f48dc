"""From unit reports to one result per rule, engine and system under test, and to the exit code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from harness.faults import Fault
from harness.judgement import HANGS
from harness.lanes.info import LaneInfo
from harness.places import Place
from harness.rules import Rule, Verdict, unsupported
from harness.settings import Settings, named
from harness.suites import Book
from harness.units import Cause, Finding, UnitReport, explores, worse
from harness.versions import version_matches

Status = Literal["held", "violated", "inconclusive", "unsupported", "error"]
EXIT = {"held": 0, "violated": 1, "inconclusive": 2, "error": 3}


@dataclass(frozen=True)
class Result:
    """One rule on one engine version with one system under test ("" on the engine side).

    `scenario` and `faults` belong to the history that decided; `replay` is the command that shows it again.
    `place` is where in that history it shows, of what is violated.
    `error` is one line when the harness broke, and then nothing is said of the rule.
    """

    rule: Rule
    version: str
    sut: str
    tp: int
    status: Status
    verdict: Verdict
    scenario: str
    faults: tuple[Fault, ...]
    histories: int
    replay: str
    causes: tuple[Cause, ...] = ()
    place: Place | None = None
    error: str = ""
    trace: str = ""


def results_of(settings: Settings, book: Book, lane: LaneInfo, reports: Iterable[UnitReport]) -> list[Result]:
    """One result per rule that this run judges, in the book's order; and that a client hung, asked for or not."""
    by_target: dict[tuple[str, str], list[UnitReport]] = {}
    for report in reports:
        by_target.setdefault((report.unit.version, report.unit.sut), []).append(report)
    out: list[Result] = []
    for version, rule in wanted(settings, book):
        for sut in settings.suts if rule.side == "refit" else ("",):
            # A rule of the client may also be exercised by engine-side scenarios, and the other way round.
            seen = [r for key, found in by_target.items() if key[0] == version and key[1] in (sut, "") for r in found]
            if rule.side == "engine":
                seen = [r for key, found in by_target.items() if key[0] == version for r in found]
            scenarios = {s.id for s in book.scenarios_of(rule.id)}
            mine = [report for report in seen if report.unit.scenario in scenarios]
            out.append(_reasoned(_result(settings, book, lane, rule, version, sut, mine), seen))
    judged = {(result.rule.id, result.version, result.sut) for result in out}
    for (version, sut), found in by_target.items():
        hung = [report for report in found if report.hung]
        if hung and (HANGS.id, version, sut) not in judged:
            out.append(_result(settings, book, lane, HANGS, version, sut, hung))
    return out


def wanted(settings: Settings, book: Book) -> list[tuple[str, Rule]]:
    """(version, rule) of every rule that the run judges.

    Rules that do not speak of a version are not part of it, nor those that none of the chosen scenarios (by name, by
    side) exercises, nor the invariants where nothing is explored.
    """
    chosen = [book.rules_of(book.scenarios[name]) for name in settings.scenarios]
    mine = {rule for s in book.scenarios.values() if settings.side in (None, s.side) for rule in book.rules_of(s)}
    return [
        (version, rule)
        for version in settings.versions
        for rule in book.rules.values()
        if settings.wants(rule.id)
        and version_matches(version, rule.versions)
        and (not chosen or any(rule.id in rules for rules in chosen))
        and rule.id in mine
        and (explores(settings) or rule.id not in book.invariants)
    ]


def _result(
    settings: Settings,
    book: Book,
    lane: LaneInfo,
    rule: Rule,
    version: str,
    sut: str,
    mine: list[UnitReport],
) -> Result:
    found: Finding | None = None
    scenario, side_sut = "", sut
    for report in mine:
        finding = report.findings.get(rule.id)
        if finding is None:
            continue
        merged = worse(found, finding)
        if found is None or _decided_by(merged) != _decided_by(found):
            scenario, side_sut = report.unit.scenario, report.unit.sut or sut
        found = merged
    broken = next((r for r in mine if r.error), None)
    if found is None:
        found = Finding(_nothing(settings, book, lane, rule, version), histories=0)
    status: Status = found.verdict.status
    if broken is not None and status != "violated":
        status, scenario, side_sut = "error", broken.unit.scenario, broken.unit.sut or sut
    faults = found.faults if status in ("violated", "held") else ()  # none decided what never occurred
    hung = rule is HANGS and not found.faults  # shows in every run of its scenario, whatever the rules
    replay = settings.replay(
        lane=lane.name,
        kind=lane.kind,
        rules=settings.rules if hung else (rule.id,),
        scenarios=(scenario,) if (faults or hung) and scenario else (),  # elsewhere faults mean other calls
        versions=(version,),
        suts=(side_sut,) if side_sut else (),
        tp=lane.tp,
        exploration=settings.exploration if rule.side == "refit" else "full",
        faults=faults or settings.faults,
        fatal_sample=None,  # its scenarios are those that ran
        allow_inconclusive=(),
    )
    return Result(
        rule=rule,
        version=version,
        sut=sut,
        tp=lane.tp,
        status=status,
        verdict=found.verdict,
        scenario=scenario,
        faults=faults,
        histories=found.histories,
        replay=replay,
        causes=found.causes,
        place=found.place,
        error=broken.error if broken is not None and status == "error" else "",
        trace=broken.trace if broken is not None and status == "error" else "",
    )


def _decided_by(finding: Finding) -> tuple[object, ...]:
    verdict = finding.verdict
    return verdict.status, verdict.allowed, verdict.actual, verdict.where, finding.faults, finding.causes, finding.place


def _reasoned(result: Result, reports: Iterable[UnitReport]) -> Result:
    """With what the client never did in any refit of the run, where the rule speaks of nothing else and nobody else
    gave a reason."""
    rule, reports = result.rule, list(reports)
    refits, done = sum(r.refits for r in reports), {what for r in reports for what in r.done}
    if result.status != "inconclusive" or result.verdict.actual or not rule.speaks_of or not refits:
        return result
    if done.intersection(rule.speaks_of):
        return result
    told = [f"sent {what[1:]}" if what.startswith(":") else f"called /{what}" for what in rule.speaks_of]
    why = f"the client never {', nor '.join(told)} in {refits} refit{'s' if refits > 1 else ''}"
    return dataclasses.replace(result, verdict=dataclasses.replace(result.verdict, actual=why))


def _nothing(settings: Settings, book: Book, lane: LaneInfo, rule: Rule, version: str) -> Verdict:
    """Why no scenario of this run exercised the rule."""
    scenarios = [s for s in book.scenarios_of(rule.id) if version_matches(version, s.versions)]
    scenarios = [s for s in scenarios if settings.side in (None, s.side)]
    if not scenarios:
        return Verdict("inconclusive", actual=f"no scenario for engine {version}")
    here = [s for s in scenarios if not s.lanes or lane.name in s.lanes]
    if not here:
        return unsupported(f"no scenario of it runs on lane {lane.name}")
    if all(s.min_tp > lane.tp for s in here):
        return Verdict("inconclusive", actual=f"needs tp >= {min(s.min_tp for s in here)}, this run has tp {lane.tp}")
    if settings.fatal_sample is not None and all(s.fatal for s in here):
        return unsupported(f"its scenarios kill the engine and are not among the {settings.fatal_sample} sampled")
    return Verdict("inconclusive", actual="no scenario of it ran")


def exit_code(settings: Settings, results: Iterable[Result]) -> int:
    """The worst: 3 harness error, 1 violated, 2 inconclusive, 0 when at least one rule held.

    SHOULD rules count as MUST rules do. A client of which every rule is unsupported was not judged at all:
    inconclusive, whatever the engines held.
    """
    results = list(results)
    statuses = {
        r.status for r in results if not (r.status == "inconclusive" and named(r.rule.id, settings.allow_inconclusive))
    }
    for status in ("error", "violated", "inconclusive"):
        if status in statuses:
            return EXIT[status]
    return 0 if "held" in statuses and not unjudged(settings, results) else EXIT["inconclusive"]


def unjudged(settings: Settings, results: Iterable[Result]) -> list[str]:
    """Systems under test of which every rule is unsupported; "", the engines, where no client is asked about and
    nothing was judged."""
    results = list(results)
    suts = {r.sut for r in results if r.sut and settings.side != "engine"}
    judged = {r.sut for r in results if r.status != "unsupported"}
    if not suts and judged:
        return []
    return sorted((suts or {""}) - judged)
