"""Executes the units of a run, here or in worker processes, and gives each report as it comes."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, util

from harness.errors import HarnessError
from harness.leaving import LEAVE, leave_in_time
from harness.runner import Runner
from harness.settings import Settings
from harness.units import Unit, UnitReport

LOOK_S = 0.1  # how often to look whether Ctrl-C was pressed
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_runner: Runner | None = None


def execute(
    settings: Settings, units: list[Unit], *, workers: int = 1, runner: Runner | None = None
) -> Iterator[UnitReport]:
    """Reports in the order in which they end. With one worker everything happens in this process, on `runner`."""
    if workers <= 1 or len(units) <= 1:
        yield from _here(settings, units, runner)
        return
    with _interrupts_noted() as interrupts:
        yield from _in_workers(settings, units, min(workers, len(units)), interrupts)


def _in_workers(settings: Settings, units: list[Unit], workers: int, interrupts: list[int]) -> Iterator[UnitReport]:
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads of torch and of the lane
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(settings,))
    pending: set[Future[UnitReport]] = set()
    complete = False
    try:
        with _workers_undisturbed():
            for unit in units:
                pending.add(pool.submit(_execute, unit))
        while pending:
            done, pending = wait(pending, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            if interrupts:
                raise KeyboardInterrupt
            for future in done:
                yield future.result()
        complete = True
    except BrokenProcessPool as error:
        raise HarnessError(f"a worker process ended: {error}") from error
    finally:
        if not complete:  # interrupted, or one unit gave a usage error: what runs now is of no use
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """The signals that came. As exceptions they could strike between two steps of the executor and leave it locked."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = {number: signal.signal(number, lambda got, _: noted.append(got)) for number in _INTERRUPTS}
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


def _here(settings: Settings, units: list[Unit], runner: Runner | None) -> Iterator[UnitReport]:
    own = runner if runner is not None else Runner(settings)
    try:
        for unit in units:
            yield own.execute(unit)
    finally:
        if runner is None:
            own.close()


def _start(settings: Settings) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it ends its workers
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    global _runner
    _runner = Runner(settings)
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


def _execute(unit: Unit) -> UnitReport:
    assert _runner is not None
    return _runner.execute(unit)
