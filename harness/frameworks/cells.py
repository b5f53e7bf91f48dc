"""One cell: what becomes of a driver on one SGLang version, read from a history of refits without any fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from harness.history import History
from harness.units import Finding, UnitReport
from harness.versions import version_matches

Outcome = Literal["works", "refused", "hangs", "stale", "dies", "unsupported", "error"]

WORDS: Mapping[Outcome, str] = {
    "works": "works",
    "refused": "refused loudly",
    "hangs": "hangs",
    "stale": "silently stale",
    "dies": "the engine dies",
    "unsupported": "not run",
    "error": "could not be judged",
}
CALLS = 100
"""Of the driver, shown with a cell."""
SESSIONS = ">=0.5.21 || miles"
BUCKETS = ("update_weights_from_tensor", "update_weights_from_distributed")
ALONE = ("update_weights_from_disk", "update_weights_from_ipc")
"""Updates that need no session."""
CONTENT = ("VERIF-1", "CACHE-4", "RANK-1", "PART-1", "NAME-2")
"""Rules whose violation means that an engine does not hold what a refit that reported success has sent."""


@dataclass(frozen=True)
class Cell:
    """One driver on one version.

    `why` is one line (what the driver raised, what it waits in, what it lacks), `paused` the engines that it left
    paused, `missing` calls that this SGLang asks for and the driver never makes, `unknown` routes that it called and
    this SGLang does not have, `rules` a status by rule, `history` the file that shows it, `replay` the command,
    `expected` what that is beside the last time, `calls` the driver's calls and how they ended,
    `undeclared` calls inside the driver that its own interface does not have, `sequence` the operations of its first
    refit, `a > b > c`, repetitions once.
    """

    sut: str
    version: str
    outcome: Outcome
    why: str = ""
    paused: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    history: str = ""
    replay: str = ""
    expected: str = ""
    calls: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    sequence: str = ""

    @property
    def violated(self) -> list[str]:
        """The rules that were broken, though nothing was faulted."""
        return [rule for rule, status in self.rules.items() if status == "violated"]

    @property
    def told(self) -> str:
        """`refused loudly, engine left paused`."""
        return WORDS[self.outcome] + (", engine left paused" if self.paused else "")


def cell_of(sut: str, version: str, report: UnitReport, history: History | None, replay: str) -> Cell:
    """Classify what one unit gave; `history` is None where the scenario broke before there was one."""
    rules = {rule: finding.verdict.status for rule, finding in sorted(report.findings.items())}
    missing = {f.verdict.missing for f in report.findings.values() if f.verdict.status == "unsupported"}
    if report.error:
        return Cell(sut, version, "error", why=report.error.partition(": ")[2], replay=replay)
    if history is None or not history.refits():
        return Cell(sut, version, "unsupported", why="; ".join(sorted(missing)), rules=rules, replay=replay)
    outcome, why = _outcome(report.findings, report.hung, history)
    return Cell(
        sut,
        version,
        outcome,
        why=why,
        paused=_left_paused(history),
        missing=_missing(version, history),
        unknown=_unknown(history),
        rules=rules,
        replay=replay,
        sequence=_sequence(history),
        undeclared=tuple(sorted({str(note.get("call")) for note in history.trainer("undeclared")})),
        calls=tuple(str(call) for call in history.calls(origin="sut"))[:CALLS],
    )


def _outcome(findings: Mapping[str, Finding], hung: str, history: History) -> tuple[Outcome, str]:
    deaths = history.facts("die", source="core")
    if deaths:
        return "dies", str(deaths[0].get("message", "")) or str(deaths[0].get("type", ""))
    failed = next((refit for refit in history.refits() if not refit.ok), None)
    if failed is not None and failed.error_type != "Hung":
        later = f"; the next refit waits in {hung}" if hung else ""
        return "refused", f"{failed.error_type}: {failed.error}{later}"
    if hung:
        return "hangs", f"it waits in {hung}"
    for rule in CONTENT:
        verdict = findings[rule].verdict if rule in findings else None
        if verdict is not None and verdict.status == "violated":
            return "stale", f"{rule}: {verdict.actual}"
    if not history.calls((*BUCKETS, *ALONE), origin="sut"):
        return "stale", "it reports success, and no update call went to the engine"
    return "works", ""


def _sequence(history: History) -> str:
    first = history.during(history.refits()[0])
    return " > ".join(op for op, _ in groupby(call.op for call in first.calls(origin="sut")))


def _left_paused(history: History) -> tuple[str, ...]:
    """Engines whose last word of the driver about generation is a pause."""
    last: dict[str, str] = {}
    for call in history.calls(("pause_generation", "continue_generation"), origin="sut"):
        if call.ok:
            last[call.engine] = call.op
    return tuple(sorted(engine for engine, op in last.items() if op == "pause_generation"))


def _missing(version: str, history: History) -> tuple[str, ...]:
    """The session calls, where this SGLang has sessions and buckets (or nothing at all) went without them."""
    if not version_matches(version, SESSIONS):
        return ()
    made = {call.op for call in history.calls(origin="sut")}
    if made & set(ALONE) and not made & set(BUCKETS):
        return ()
    return tuple(op for op in ("begin_weight_update", "end_weight_update") if op not in made)


def _unknown(history: History) -> tuple[str, ...]:
    return tuple(sorted({call.op for call in history.calls(origin="sut") if call.status == 404 and not call.fault}))
