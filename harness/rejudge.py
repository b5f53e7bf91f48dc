"""`refitcheck judge`: the judges over a stored history, whoever recorded it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.history import History
from harness.history_files import read_history
from harness.results import EXIT
from harness.rules import Rule, Verdict
from harness.settings import named
from harness.suites import load_book
from harness.versions import version_matches


def judge_history(history: History, rules: Sequence[Rule]) -> list[tuple[Rule, Verdict]]:
    """Every rule that speaks of the engine version in the header."""
    version = history.header.engine_version
    return [(rule, rule.judge(history)) for rule in rules if not version or version_matches(version, rule.versions)]


def judge_files(files: Sequence[Path], names: tuple[str, ...], *, without_core: bool = False) -> int:
    """Print one line per rule that the history exercised; the exit code of the worst."""
    from rich.console import Console

    history = read_history(*files)
    if without_core:
        history = history.without_core()
    book = load_book()
    mine = [rule for rule in book.rules.values() if rule.id not in book.invariants]  # those need two histories
    rules = [rule for rule in mine if not names or named(rule.id, names)]
    if not rules:
        raise UsageError(f"no rule or family {' '.join(names)}; see refitcheck list")
    console = Console(highlight=False, soft_wrap=True)
    try:
        verdicts = judge_history(history, rules)
    except ValueError as error:
        raise UsageError(f"{files[0]}: {error}") from error
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
