"""What a run says while it runs, on standard error: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.streams import complain
from harness.units import UnitReport

EVERY_S = 10.0  # real seconds between two lines

Advance = Callable[[UnitReport], None]


@contextmanager
def progress(total: int) -> Iterator[Advance]:
    """Tell it of every report; everything goes to standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    with _bar(console, total) if console.is_terminal else _lines(total) as advance:
        yield advance


@contextmanager
def _bar(console: object, total: int) -> Iterator[Advance]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:  # type: ignore[arg-type]  # rich is imported late
        task = bar.add_task("", total=total)
        yield lambda report: bar.update(task, advance=1, description=report.unit.scenario)


@contextmanager
def _lines(total: int) -> Iterator[Advance]:
    """A line every ten seconds, from a thread of its own: one scenario may take longer than that."""
    tally = Tally(total)
    over = threading.Event()

    def beat() -> None:
        while not over.wait(EVERY_S):
            tally.say()

    thread = threading.Thread(target=beat, name="progress", daemon=True)
    thread.start()
    try:
        yield tally.add
    finally:
        over.set()
        thread.join(timeout=1.0)


class Tally:
    """How many parts of a run are done; a part is a scenario on one engine, or a share of its explored faults."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._clock, self._start = total, clock, clock()
        self._done, self._last = 0, ""

    def add(self, report: UnitReport) -> None:
        """One more."""
        self._done += 1
        self._last = report.unit.scenario

    def line(self) -> str:
        """`34 of 378 parts done, 344 left, after 20 s (last refit/envelope/two-refits)`."""
        last = f" (last {self._last})" if self._last else ""
        left = self._total - self._done
        return f"{self._done} of {self._total} parts done, {left} left, after {self._clock() - self._start:.0f} s{last}"

    def say(self) -> None:
        """The line, on standard error."""
        complain(self.line())
