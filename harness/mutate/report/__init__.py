"""Reports of a mutation session: Stryker's JSON, the page that shows it, and the kill matrix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from harness.errors import UsageError
from harness.mutate.report import pages, stryker
from harness.mutate.session import Outcome

JSON, PAGE, MATRIX = "mutation.json", "mutation.html", "matrix.html"


def write(outcome: Outcome, folder: Path, *, rules: Mapping[str, str], title: str) -> list[Path]:
    """Write all three into `folder` (made if need be). `rules`: the text of each rule. UsageError when that fails."""
    report = stryker.report(outcome)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / JSON).write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
        (folder / PAGE).write_text(pages.mutation(report, title), encoding="utf-8")
        (folder / MATRIX).write_text(pages.matrix(outcome, rules, title), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}") from error
    return [folder / JSON, folder / PAGE, folder / MATRIX]
