"""Executes the units of a run, here or in worker processes, and gives each report as it comes."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, util
from multiprocessing.process import BaseProcess
from time import monotonic, sleep
from typing import Any

from harness import watchdog
from harness.errors import HarnessError
from harness.leaving import LEAVE, LINGER_S, leave_in_time
from harness.outputs import HistoryFolder
from harness.runner import Runner, imported, outlived
from harness.settings import Settings
from harness.streams import prepare_streams
from harness.sut.loader import is_ours
from harness.units import Unit, UnitReport
from harness.vigil import Vigil

LOOK_S = 0.1  # how often to look whether Ctrl-C was pressed
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_runner: Runner | None = None
_folder: HistoryFolder | None = None

APART = True
"""False keeps one worker in this process whatever it runs, for tests whose entry points no other process would find."""


def any_apart(suts: Sequence[str]) -> bool:
    """Whether one of these clients is not ours: the process that decides the exit code never imports it."""
    return APART and not all(is_ours(name) for name in suts)


def execute(
    settings: Settings, units: list[Unit], *, workers: int = 1, folder: HistoryFolder | None = None
) -> Iterator[UnitReport]:
    """Reports in the order in which they end; `folder` keeps the histories, of one worker.

    With one worker, clients of ours and rules run in this process.
    """
    if folder is not None:
        workers = 1
    if not any_apart(settings.suts) and (workers <= 1 or len(units) <= 1):
        yield from _here(settings, units, folder)
        return
    crew = Crew(settings, max(1, min(workers, len(units))), folder)
    try:
        yield from crew.reports(units)
        if folder is not None:
            folder.unwritten = crew.unwritten()
    finally:
        crew.close()


class Crew:
    """Worker processes that run units. Only what a worker gave back as a whole counts; one that ends is an error."""

    def __init__(self, settings: Settings, workers: int = 1, folder: HistoryFolder | None = None) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the threads of torch and of the lane
        self._others = set(multiprocessing.active_children())
        self._processes: set[BaseProcess] = set()
        self._vigil = Vigil(context, workers)
        given = (settings, self._vigil, folder)
        self._pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=given)
        self._unchecked = () if not any_apart(settings.suts) else settings.suts
        self._whole = True

    def check(self) -> None:
        """Import the systems under test, in a worker. UsageError for one that is none."""
        list(self._results(self._submit([])))

    def reports(self, units: list[Unit]) -> Iterator[UnitReport]:
        """A report for each unit, in the order in which they end."""
        yield from self._results(self._submit([(_execute, unit) for unit in units]))

    def unwritten(self) -> str:
        """Why the folder of histories took no more; "" where it took all."""
        (told,) = self._results(self._submit([(_unwritten,)]))
        return str(told)

    def close(self) -> None:
        """End the workers: those that were interrupted or broken at once, the others in bounded time."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._whole:
            _join(self._processes, 2 * LINGER_S)
        for process in self._processes:
            process.kill()  # nothing of use runs there; servers of a lane end with it
        self._pool.shutdown()

    def _submit(self, calls: list[tuple[Any, ...]]) -> set[Future[Any]]:
        checks = [(_check, name) for name in self._unchecked]
        self._unchecked = ()
        try:
            with _workers_undisturbed():
                return {self._pool.submit(*call) for call in (*checks, *calls)}
        except BrokenProcessPool as error:
            raise HarnessError(self._why(error)) from error
        finally:
            self._processes |= set(multiprocessing.active_children()) - self._others

    def _results(self, pending: set[Future[Any]]) -> Iterator[Any]:
        whole, self._whole = self._whole, False
        try:
            with _interrupts_noted() as interrupts:
                while pending:
                    done, pending = wait(pending, timeout=LOOK_S, return_when=FIRST_COMPLETED)
                    if interrupts:
                        raise KeyboardInterrupt
                    for result in [future.result() for future in done]:
                        if result is not None:
                            yield result
                    late = self._vigil.late()
                    if late:
                        raise HarnessError(f"{late} does not come back, and nothing interrupts it")
            self._whole = whole
        except BrokenProcessPool as error:
            raise HarnessError(self._why(error)) from error

    def _why(self, error: Exception) -> str:
        """The executor ends the others by SIGTERM once one has ended."""
        _join(self._processes, LINGER_S)
        codes = {p.pid: p.exitcode for p in self._processes if p.exitcode != -signal.SIGTERM}
        told = [text for text in (self._vigil.told_of(pid or 0, code) for pid, code in codes.items()) if text]
        return "; ".join(told) or f"a worker process ended: {error}"


def _join(processes: set[BaseProcess], seconds: float) -> None:
    """The executor's own thread waits for them too, and the one that comes second learns of no exit code yet."""
    end = monotonic() + seconds
    for process in processes:
        process.join(max(0.0, end - monotonic()))
    while any(process.exitcode is None for process in processes) and monotonic() < end:
        sleep(LOOK_S / 10)


@contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """The signals that came. As exceptions they could strike between two steps of the executor and leave it locked."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    # What a background job was told to ignore it goes on ignoring.
    heard = [number for number in _INTERRUPTS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda got, _: noted.append(got)) for number in heard}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def _workers_undisturbed() -> Iterator[None]:
    """Workers that start now are not told of Ctrl-C, as a terminal would: a half started one shows a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)  # children begin with the mask of their parent
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _here(settings: Settings, units: list[Unit], folder: HistoryFolder | None) -> Iterator[UnitReport]:
    runner = _made(settings, folder)
    try:
        for unit in units:
            yield runner.execute(unit)
    finally:
        runner.close()


def _made(settings: Settings, folder: HistoryFolder | None) -> Runner:
    runner = Runner(settings)
    if folder is not None:
        runner.on_history = folder.keep
    return runner


def _start(settings: Settings, vigil: Vigil, folder: HistoryFolder | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it ends its workers
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare_streams()
    global _runner, _folder
    vigil.take()
    watchdog.VIGIL.append(vigil)
    _runner, _folder = _made(settings, folder), folder
    util.Finalize(None, _end, exitpriority=-1)


def _end() -> None:
    """The last thing that a worker does before it waits for a client's threads, which may never end."""
    assert _runner is not None
    leave_in_time(0)
    _runner.close()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers, and they would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        LEAVE(1)


def _check(name: str) -> None:
    assert _runner is not None
    try:
        with outlived():
            imported(name, _runner.settings.hang_timeout)
    except HarnessError as error:
        raise HarnessError(f"importing {name!r}: {error}") from error


def _execute(unit: Unit) -> UnitReport:
    assert _runner is not None
    watchdog.VIGIL[-1].begin(unit.scenario)
    return _runner.execute(unit)


def _unwritten() -> str:
    return _folder.unwritten if _folder is not None else ""
