"""`refitcheck judge`: the judges over a stored history, whoever recorded it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from traceback import walk_tb

from harness.errors import MalformedHistory, UsageError
from harness.happenings import Call
from harness.history import History, Note
from harness.history_files import read_history
from harness.results import EXIT
from harness.rules import Rule, Verdict
from harness.settings import named
from harness.suites import load_book
from harness.versions import version_matches
from harness.words import quoted, told


def judge_history(history: History, rules: Sequence[Rule]) -> list[tuple[Rule, Verdict]]:
    """Every rule that speaks of the engine version in the header.

    MalformedHistory where a judge cannot read what is written: it names the rule and, where it can, the record.
    """
    version = history.header.engine_version
    out: list[tuple[Rule, Verdict]] = []
    for rule in rules:
        try:
            if not version or version_matches(version, rule.versions):
                out.append((rule, rule.judge(history)))
        except Exception as error:
            raise MalformedHistory(
                f"{_record_at_fault(error)}{rule.id} cannot read it: {quoted(told(error))}"
            ) from error
    return out


def _record_at_fault(error: Exception) -> str:
    """`record 17 (t=1.250 e0 core:flush): `, of the call or note that the judge had in hand; "" when it had none."""
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        for value in reversed(frame.f_locals.values()):
            if isinstance(value, Call | Note):
                return f"record {value.pos + 1} ({quoted(value, 120)}): "
    return ""


def judge_files(files: Sequence[Path], names: tuple[str, ...], *, without_core: bool = False) -> int:
    """Print one line per rule that the history exercised; the exit code of the worst."""
    from harness.console import Printer

    history = read_history(*files)
    if without_core:
        history = history.without_core()
    book = load_book()
    mine = [rule for rule in book.rules.values() if rule.id not in book.invariants]  # those need two histories
    rules = [rule for rule in mine if not names or named(rule.id, names)]
    if not rules:
        known = any(named(rule, names) for rule in book.invariants)
        why = "is judged beside a fault-free history, by run alone" if known else "is no rule or family"
        raise UsageError(f"{' '.join(names)} {why}; see refitcheck list")
    console = Printer(soft_wrap=True)
    try:
        verdicts = judge_history(history, rules)
    except MalformedHistory as error:
        raise MalformedHistory(f"{files[0]}: {error}") from error
    worst = "held" if any(v.status == "held" for _, v in verdicts) else "inconclusive"
    for rule, verdict in verdicts:
        if verdict.status == "violated":
            worst = "violated"
        if verdict.status in ("held", "violated"):
            tail = f"  {verdict.actual}  at {verdict.where}" if verdict.status == "violated" else ""
            console.print(f"{rule.id}  {verdict.status}  ×{verdict.exercised}{tail}", markup=False)
    header = history.header
    console.print(
        f"{len(history.calls_)} calls, {len(history.notes_)} notes, engine {header.engine_version or '?'} on lane "
        f"{header.lane or '?'}, seed {header.seed}",
        markup=False,
    )
    return EXIT[worst]
