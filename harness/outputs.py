"""The files that a run leaves behind: checked before anything runs, written whole, never in the way of the verdict."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.faults import Fault
from harness.history import History
from harness.history_files import write_history
from harness.report.run import Run
from harness.units import Unit


@dataclass(frozen=True)
class Outputs:
    """Files to write; None for none."""

    junitxml: Path | None = None
    report: Path | None = None
    summary: Path | None = None
    histories: Path | None = None

    def __post_init__(self) -> None:
        for name in ("junitxml", "report", "summary", "histories"):
            path = getattr(self, name)
            if path is not None:  # a client may go to another folder while it runs
                object.__setattr__(self, name, path.absolute())

    def check(self) -> None:
        """UsageError for what cannot be written, before anything runs."""
        for path in filter(None, (self.junitxml, self.report, self.summary)):
            with _told(path):
                if not path.absolute().parent.is_dir():
                    raise UsageError(f"{path}: no such folder")
                if path.is_dir():
                    raise UsageError(f"{path}: is a folder")
                new = not path.exists()
                path.open("ab").close()
                if new:
                    path.unlink(missing_ok=True)  # a second run may have done so
        if self.histories is not None:
            with _told(self.histories):
                if self.histories.exists() and not self.histories.is_dir():
                    raise UsageError(f"{self.histories}: is no folder")
                self.histories.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(prefix=".refitcheck-", dir=self.histories).close()

    def write(self, done: Run) -> tuple[list[str], list[str]]:
        """Write what was asked for: the files, and one line for each that could not be written."""
        from harness.report import junit, markdown, results_json

        written: list[str] = []
        unwritten: list[str] = []
        writers = (
            (results_json.write, self.report),
            (junit.write, self.junitxml),
            (markdown.write, self.summary),
        )
        for write, path in writers:
            if path is not None:
                try:
                    with _told(path):
                        write(done, path)
                    written.append(str(path))
                except UsageError as error:
                    unwritten.append(str(error))
        try:
            with _told("$GITHUB_STEP_SUMMARY"):
                if markdown.write_step_summary(done):
                    written.append("$GITHUB_STEP_SUMMARY")
        except UsageError as error:
            unwritten.append(str(error))
        return written, unwritten


class HistoryFolder:
    """Keeps every history of a run in a folder, under names that say what it is.

    `unwritten` is one line once the folder took no more; the run goes on without.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[str, int] = {}
        self.unwritten = ""

    def keep(self, unit: Unit, faults: tuple[Fault, ...], history: History) -> None:
        """Write one, unless one could not be written before."""
        del faults  # they are in the history
        if self.unwritten:
            return
        stem = "-".join(filter(None, (unit.scenario.replace("/", "."), unit.version, f"tp{unit.tp}", unit.sut)))
        stem = stem.replace(":", ".").replace(os.sep, ".")
        number = self._counts[stem] = self._counts.get(stem, 0) + 1
        suffix = f"-{number}" if number > 1 else ""
        path = self._folder / f"{stem}{suffix}.jsonl.xz"
        try:
            with _told(path):
                write_history(path, history)
        except UsageError as error:
            self.unwritten = f"{error} (and no history after it)"


@contextmanager
def _told(what: Path | str) -> Iterator[None]:
    """An OSError as a UsageError that names `what`."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{what}: {error.strerror or error}") from error
