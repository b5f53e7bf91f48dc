"""Reports of a mutation session: Stryker's JSON, the page that shows it, and the kill matrix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from harness.errors import UsageError
from harness.mutate.plan import Outcome
from harness.mutate.report import pages, stryker
from harness.whole_files import write_whole

JSON, PAGE, MATRIX = "mutation.json", "mutation.html", "matrix.html"


def write(outcome: Outcome, folder: Path, *, rules: Mapping[str, str], title: str) -> list[Path]:
    """Write all three into `folder` (made if need be). `rules`: the text of each rule. UsageError when that fails."""
    report = stryker.report(outcome)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / JSON, json.dumps(report, indent=1, ensure_ascii=False).encode())
        write_whole(folder / PAGE, pages.mutation(report, title).encode())
        write_whole(folder / MATRIX, pages.matrix(outcome, rules, title).encode())
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}") from error
    return [folder / JSON, folder / PAGE, folder / MATRIX]
