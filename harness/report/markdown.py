"""The Markdown summary, for a pull request or $GITHUB_STEP_SUMMARY."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from harness.report import text
from harness.report.run import STATUSES, Run
from harness.results import Result
from harness.whole_files import append_whole, write_whole


def render(run: Run) -> str:
    """Header, counts, families, findings, and what was not judged."""
    counts = run.counts()
    lines = [
        "## refitcheck",
        "",
        f"`{text.header(run.settings, run.lane)}`",
        "",
        "| " + " | ".join(STATUSES) + " | seconds |",
        "|" + "---|" * (len(STATUSES) + 1),
        "| " + " | ".join(str(counts[status]) for status in STATUSES) + f" | {run.seconds:.0f} |",
        "",
        "| family | held | judged |",
        "|---|---|---|",
        *(f"| {name} | {held} | {judged} |" for name, (held, judged) in run.families().items()),
        "",
    ]
    blocks = text.failures(run)
    if blocks:
        blocks = [*text.starting(run), *blocks]
        lines += ["### Findings", "", *(f"```text\n{block}\n```" for block in blocks), ""]
    lines += list(_not_judged(run))
    return "\n".join(lines).rstrip() + "\n"


def write(run: Run, path: Path) -> None:
    """Write the summary to a file of its own."""
    write_whole(path, render(run).encode("utf-8", "replace"))


def write_step_summary(run: Run) -> bool:
    """Append the summary to $GITHUB_STEP_SUMMARY; False when it is not set."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return False
    append_whole(Path(target), render(run).encode("utf-8", "replace"))
    return True


def _not_judged(run: Run) -> Iterable[str]:
    missing = run.with_status("unsupported")
    if not missing:
        return
    yield from ("### Not judged", "", "| rule | engine | why |", "|---|---|---|")
    for result in missing:
        yield f"| {result.rule.id} | {_engine(run, result)} | {_cell(result.verdict.missing)} |"


def _engine(run: Run, result: Result) -> str:
    return f"{run.lane.kind}:{result.version}"


def _cell(value: str) -> str:
    return " ".join(value.split()).replace("|", "\\|")
