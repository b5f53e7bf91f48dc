"""The progress of a session on a terminal: what runs, what is left, and how long that will take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from harness.mutate.mutant import Result
from harness.streams import complain


class Quiet:
    """Nobody watches; lines that matter are kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def phase(self, name: str, total: int) -> None:
        """A new phase begins."""

    def running(self, ids: Sequence[str]) -> None:
        """These run now."""

    def done(self, result: Result | None = None) -> None:
        """One more is finished."""

    def reached(self, done: int) -> None:
        """So many of this phase are finished."""

    def line(self, text: str) -> None:
        """Something to tell the user."""
        self.lines.append(text)


class Log(Quiet):
    """A log is watched: now and then a line on how far the session is, and what it is at."""

    EVERY_S = 15.0

    def __init__(self, tell: Callable[[str], None] = complain, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._tell, self._clock = tell, clock
        self._started = self._told = clock()
        self._name, self._total, self._done = "", 0, 0

    def phase(self, name: str, total: int) -> None:
        """A new phase begins."""
        self._name, self._total, self._done = name, total, 0

    def running(self, ids: Sequence[str]) -> None:
        """These run now."""
        now = self._clock()
        if now - self._told >= self.EVERY_S:
            self._told = now
            at = f": {ids[0][:100]}" if ids else ""
            self._tell(f"{now - self._started:.0f} s, {self._name} {self._done}/{self._total}{at}")

    def reached(self, done: int) -> None:
        """So many of this phase are finished."""
        self._done = done

    def done(self, result: Result | None = None) -> None:
        """One more is finished."""
        self._done += 1


class Bar:
    """A progress bar on stderr. It has no thread of its own: a fork must not copy one that holds a lock."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._console = Console(stderr=True, highlight=False, emoji=False)
        self._bar = Progress(
            TextColumn("{task.fields[phase]}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[tally]} {task.description}", markup=False),
            console=self._console,
            auto_refresh=False,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: Any = None
        self._alive = 0

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: Any, trace: TracebackType | None) -> None:
        self._bar.stop()

    def phase(self, name: str, total: int) -> None:
        """A new phase begins: a new bar in place of the old."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._alive = 0
        self._task = self._bar.add_task("", total=total, phase=name, tally="")
        self._bar.refresh()

    def running(self, ids: Sequence[str]) -> None:
        """These run now."""
        if self._task is not None:
            self._bar.update(self._task, description=(ids[0] if ids else "")[:70])
            self._bar.refresh()

    def reached(self, done: int) -> None:
        """So many of this phase are finished."""
        if self._task is not None:
            self._bar.update(self._task, completed=done)

    def done(self, result: Result | None = None) -> None:
        """One more is finished."""
        if self._task is None:
            return
        if result is not None and result.verdict in ("survived", "misattributed"):
            self._alive += 1
        tally = f"{self._alive} not killed" if self._alive else ""
        self._bar.update(self._task, advance=1, tally=tally)

    def line(self, text: str) -> None:
        """Something to tell the user, above the bar."""
        self._console.print(f"refitcheck: {text}", soft_wrap=True, markup=False)
