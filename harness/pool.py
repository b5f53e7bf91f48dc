"""Executes the units of a run, here or in worker processes, and gives each report as it comes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from harness.errors import HarnessError
from harness.runner import Runner
from harness.settings import Settings
from harness.units import Unit, UnitReport

_runner: Runner | None = None


def execute(
    settings: Settings, units: list[Unit], *, workers: int = 1, runner: Runner | None = None
) -> Iterator[UnitReport]:
    """Reports in the order in which they end. With one worker everything happens in this process, on `runner`."""
    if workers <= 1 or len(units) <= 1:
        yield from _here(settings, units, runner)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads of torch and of the lane
    workers = min(workers, len(units))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(settings,)) as pool:
        pending = {pool.submit(_execute, unit) for unit in units}
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BrokenProcessPool as error:
            raise HarnessError(f"a worker process ended: {error}") from error
        finally:
            for future in pending:
                future.cancel()


def _here(settings: Settings, units: list[Unit], runner: Runner | None) -> Iterator[UnitReport]:
    own = runner if runner is not None else Runner(settings)
    try:
        for unit in units:
            yield own.execute(unit)
    finally:
        if runner is None:
            own.close()


def _start(settings: Settings) -> None:
    import atexit
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it cancels what has not begun
    global _runner
    _runner = Runner(settings)
    atexit.register(_runner.close)


def _execute(unit: Unit) -> UnitReport:
    assert _runner is not None
    return _runner.execute(unit)
