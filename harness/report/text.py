"""The terminal's words: header, failure blocks, and the summary. Plain text; colour is the caller's."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from harness.lanes.info import LaneInfo
from harness.report.leads import Told, after_fault, in_order, starts
from harness.report.run import Run, our_version
from harness.results import Result
from harness.settings import HANG_TIMEOUT_S, Settings, named
from harness.units import UnitReport
from harness.words import one_line

MOST_INCONCLUSIVE = 5
"""Blocks of inconclusive results; the summary names all of them with their reasons."""

_SECONDS = re.compile(r"\d s\b")
MARKS = {"violated": "✗", "inconclusive": "?", "error": "!", "held": "✓", "unsupported": "-"}


def header(settings: Settings, lane: LaneInfo) -> str:
    """All that is needed to run it again, in one line."""
    sut = f"sut {', '.join(settings.suts)}, policy {settings.policy}" if settings.suts else "no sut"
    engines = f"engine {lane.kind}:{','.join(settings.versions)} {lane.where}, tp {lane.tp}"
    parts = [f"refitcheck {our_version()}", engines, f"clock: {lane.clock_told}", sut]
    parts.append(f"seed {settings.seed}")
    if settings.side:
        parts.append(f"{settings.side} side")
    if settings.exploration == "off" and lane.clock != "virtual":
        parts.append("exploration off (--exploration sample makes the client's calls fail, in real time)")
    elif settings.exploration != "full":
        parts.append(f"exploration {settings.exploration}")
    if settings.rules:
        parts.append(f"rules {' '.join(settings.rules)}")
    if settings.scenarios:
        parts.append(f"scenarios {' '.join(settings.scenarios)}")
    if settings.allow_inconclusive:
        parts.append(f"may be inconclusive: {' '.join(settings.allow_inconclusive)}")
    for whose, options in (("lane", settings.lane_options), ("sut", settings.sut_options)):
        if options:
            parts.append(" ".join((f"{whose} options", *(f"{name}={value}" for name, value in options.items()))))
    if settings.faults:
        parts.append(f"faults {' '.join(map(str, settings.faults))}")
    if settings.fatal_sample is not None:
        parts.append(f"fatal sample {settings.fatal_sample}")
    if settings.hang_timeout != HANG_TIMEOUT_S:
        parts.append(f"hang timeout {settings.hang_timeout:g} s")
    if settings.death != "raise":
        parts.append(f"death {settings.death}")
    if settings.plant:
        parts.append(f"plant {settings.plant}")
    return "   ".join(parts)


def failure(result: Result, lane: LaneInfo, told: Told | None = None) -> str:
    """One finding: clause, allowed set, the actual, what it likely repeats, and the line that shows it again."""
    rule = result.rule
    versions = f"(sglang {rule.versions})" if rule.versions else "(every sglang)"
    sut = f"        sut  {result.sut}" if result.sut else ""
    lines = [
        f"{MARKS[result.status]} {rule.id} {rule.level}  {versions}  {one_line(rule.text)}",
        f"  engine   {lane.where} {lane.kind}:{result.version} tp {result.tp}{sut}",
        f"  clause   {' · '.join(rule.citations)}",
    ]
    if result.status == "error":
        lines.append(f"  error    {result.error}")
    elif result.status == "inconclusive":
        lines.append(f"  why      {result.verdict.actual or 'its precondition never occurred'}")
    else:
        lines.append(f"  allowed  {'   |   '.join(map(one_line, result.verdict.allowed)) or '-'}")
        lines.append(f"  actual   {one_line(result.verdict.actual)}")
        if result.verdict.where:
            lines.append(f"  where    {result.scenario}: {one_line(result.verdict.where)}")
        if lane.scale != 1 and _SECONDS.search(" ".join((*result.verdict.allowed, result.verdict.actual))):
            lines.append(f"  clock    {lane.clock_told}; time_scale=1 judges time-outs as they are")
        if result.faults:
            lines.append(f"  fault    {' '.join(map(str, result.faults))}")
        lines += _stands_behind(result, told)
        if rule.mend:
            lines.append(f"  mend     {one_line(rule.mend)}")
    lines.append(f"  replay   {result.replay}")
    return "\n".join(lines)


def _stands_behind(result: Result, told: Told | None) -> Iterable[str]:
    behind = told.behind if told is not None else None
    if behind is not None and told is not None and told.why == "echoes":
        yield f"  echo     likely of {behind.rule.id}, which is broken in {behind.scenario}, too"
    elif behind is not None and told is not None and told.why == "behind":
        yield f"  behind   {behind.rule.id}, which is broken no later wherever this is"
    for follows in result.causes:
        yield f"  follows  likely from {follows.rule}, which the same history breaks: {one_line(follows.actual)}"


def failures(run: Run) -> list[str]:
    """A block for every result that is neither held nor unsupported, nor inconclusive and allowed to be.

    First of all that refits fail without any fault: much follows from that. The violated ones in the order of `leads`.
    One for each cause of a harness error: what breaks one scenario
    often breaks all, and the summary names the rules.
    """
    out = list(raised(run.reports))
    out += [failure(one.result, run.lane, one) for one in told(run)]
    causes = {cause(r): r for r in reversed(run.with_status("error"))}
    out += [failure(r, run.lane) for r in reversed(causes.values())]
    allowed = run.settings.allow_inconclusive
    unsettled = [r for r in run.with_status("inconclusive") if not named(r.rule.id, allowed)]
    return out + [failure(r, run.lane) for r in unsettled[:MOST_INCONCLUSIVE]]


def told(run: Run) -> list[Told]:
    """What is violated, in the order of `leads`."""
    return in_order(run.with_status("violated"), run.reports)


def starting(run: Run) -> list[str]:
    """Where to start, of each version and system under test with several findings: a block each."""
    return [_start(found) for found in starts(told(run))]


def _start(found: Sequence[Told]) -> str:
    first = found[0].result
    whose = f" ({first.version}{f', {first.sut}' if first.sut else ''})"
    lines = [
        f"→ start here: {first.rule.id}{whose}: {one_line(first.verdict.actual)}",
        f"  where    {first.scenario}: {one_line(first.verdict.where)}{_fault_met(first)}",
    ]
    lines += [f"  mend     {one_line(first.rule.mend)}"] if first.rule.mend else []
    followers: dict[str, list[str]] = {}
    for one in found[1:]:
        if one.lead is first:
            followers.setdefault(_HOW[one.why], []).append(one.result.rule.id)
    lines += [f"  with it  {' '.join(rules)} ({how})" for how, rules in followers.items()]
    leads = [one.result for one in found[1:] if one.lead is None]
    if leads:
        lines.append(f"  then     {'   '.join(_next(lead, found) for lead in leads)}")
    return "\n".join(lines)


def _next(lead: Result, found: Sequence[Told]) -> str:
    """`PART-1 with VER-4 (after a fault)`."""
    mine = [one.result.rule.id for one in found if one.lead is lead]
    rest = f" with {' '.join(mine) if len(mine) <= 3 else f'{len(mine)} more'}" if mine else ""
    return f"{lead.rule.id}{rest}{_fault_met(lead)}"


_HOW = {
    "follows": "likely of it, in the same history",
    "echoes": "likely the same, in other scenarios",
    "behind": "no earlier than it, wherever they are broken",
}


def _fault_met(result: Result) -> str:
    return " (after a fault)" if after_fault(result) else ""


def raised(reports: Iterable[UnitReport]) -> Iterable[str]:
    """One line when a refit failed though nothing was faulted."""
    for report in reports:
        if report.raised:
            yield f"! refits fail without any fault: {one_line(report.raised)} (in {report.unit.scenario})"
            return


def cause(result: Result) -> str:
    """A harness error without the scenario that it broke."""
    return result.error.removeprefix(f"scenario {result.scenario}: ")


def summary(run: Run, files: Sequence[str] = (), width: int = 100) -> str:
    """Counts, families, how often each precondition occurred, what was not judged and why, seconds and files."""
    counts = run.counts()
    lines = [header(run.settings, run.lane)]
    lines += _wrapped(_recorded(run), width)
    families = "   ".join(f"{name} {held}/{judged}" for name, (held, judged) in run.families().items())
    lines += _wrapped(families, width)
    exercised = "  ".join(f"{rule}×{count}" for rule, count in run.exercised().items())
    lines += _wrapped(f"exercised  {exercised}", width)
    parts = [f"held {counts['held']}", f"violated {counts['violated']}", f"inconclusive {counts['inconclusive']}"]
    if counts["error"]:
        parts.append(f"harness error {counts['error']}")
    parts.append(f"unsupported {counts['unsupported']}")
    lines.append("  " + "   ".join(parts))
    lines += [line for remark in policies(run.settings, run.reports) for line in _wrapped(remark, width, "    ")]
    lines += [line for remark in _fallen(run.reports) for line in _wrapped(remark, width, "    ")]
    for reason, rules in _reasons(run):
        lines += _wrapped(f"{reason}: {' '.join(rules)}", width, "    ")
    lines.append("  " + "   ".join([f"{run.seconds:.0f} s", *files]))
    return "\n".join(lines)


def policies(settings: Settings, reports: Iterable[UnitReport]) -> Iterable[str]:
    """Adapters that declare another failure policy than the one that is judged."""
    declared = {(r.unit.sut, r.policy) for r in reports if r.policy and r.policy != settings.policy}
    for sut, policy in sorted(declared):
        yield f"policy {settings.policy} is judged, as --policy says; {sut} declares {policy} (Caps.policy)"


def _fallen(reports: Iterable[UnitReport]) -> Iterable[str]:
    fell = [report for report in reports if report.fell]
    if fell:
        scenarios = " ".join(dict.fromkeys(report.unit.scenario for report in fell))
        yield f"engines took their client's process with them, and nothing after that was judged: {scenarios}"


def _recorded(run: Run) -> str:
    explored = [r for r in run.reports if r.unit.shard[1]]
    plain = [r for r in run.reports if not r.unit.shard[1]]
    calls = sum(r.calls for r in plain)
    parts = [f"{len(plain)} scenarios", f"recorded {calls} calls of the client"]
    if explored:
        scenarios = {(r.unit.scenario, r.unit.version, r.unit.sut) for r in explored}
        parts.append(f"explored faults in {len(scenarios)} of them = {sum(r.runs for r in explored)} runs")
    parts.append(f"{len(run.results)} verdicts")
    return " · ".join(parts)


def _reasons(run: Run) -> Iterable[tuple[str, list[str]]]:
    """Why rules were not judged, each reason with its rules."""
    out: dict[str, list[str]] = {}
    for result in run.with_status("unsupported"):
        out.setdefault(f"unsupported, {result.verdict.missing or 'no reason given'}", []).append(result.rule.id)
    for result in run.with_status("inconclusive"):
        why = result.verdict.actual or "its precondition never occurred"
        out.setdefault(f"inconclusive, {why}", []).append(result.rule.id)
    for result in run.with_status("error"):
        out.setdefault(f"harness error, {cause(result)}", []).append(result.rule.id)
    return ((reason, list(dict.fromkeys(rules))) for reason, rules in out.items())


def _wrapped(text: str, width: int, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
