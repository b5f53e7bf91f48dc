"""Executes the units of a run, here or in worker processes, and gives each report as it comes.

A worker and its parent speak through one pipe, and each worker has one call at a time: no queue, no lock and no name
in /dev/shm that a run killed with SIGKILL would leave behind.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import connection
from typing import Any

from harness import watchdog
from harness.errors import HarnessError, UsageError
from harness.frames import Answers, send_answer
from harness.interrupts import SIGNALS, came, children_undisturbed, interrupts_noted
from harness.lanes.loader import load_lane
from harness.leaving import LEAVE, LINGER_S, leave_in_time
from harness.losses import Losses
from harness.outputs import HistoryFolder
from harness.runner import Runner, imported, outlived
from harness.settings import Settings
from harness.streams import prepare_streams
from harness.sut.loader import is_ours
from harness.sut.options import check_options
from harness.units import Unit, UnitReport
from harness.vigil import Vigil
from harness.words import told

LOOK_S = 0.1  # how often to look whether Ctrl-C was pressed
REAP_S = 60.0  # so long the end of a process may take
_runner: Runner | None = None
_folder: HistoryFolder | None = None

APART = True
"""False keeps one worker in this process whatever it runs, for tests whose entry points no other process would find."""

Call = tuple[Callable[[Any], Any], Any]
"""A function of this module, and its argument."""


def any_apart(settings: Settings) -> bool:
    """Whether no client may live in this process, which decides the exit code: it is not ours, or is to be killed."""
    return settings.death == "process" or any_foreign(settings.suts)


def any_foreign(suts: Sequence[str]) -> bool:
    """Whether one of these clients is not ours."""
    return APART and not all(is_ours(name) for name in suts)


def execute(
    settings: Settings, units: list[Unit], *, workers: int = 1, folder: HistoryFolder | None = None
) -> Iterator[UnitReport]:
    """Reports in the order in which they end; `folder` keeps the histories, of one worker.

    With one worker, clients of ours and rules run in this process.
    """
    if folder is not None:
        workers = 1
    if not any_apart(settings) and (workers <= 1 or len(units) <= 1):
        yield from _here(settings, units, folder)
        return
    crew = Crew(settings, max(1, min(workers, len(units))), folder)
    try:
        yield from crew.reports(units)
        if folder is not None and crew.folder is not None:
            folder.unwritten = crew.folder.unwritten
    finally:
        crew.close()


class Crew:
    """Worker processes that run units. Only what a worker gave back as a whole counts.

    What one that ends leaves undone another one does, once (`harness.losses`). `folder` is how far its histories are.
    """

    def __init__(self, settings: Settings, workers: int = 1, folder: HistoryFolder | None = None) -> None:
        self._context = multiprocessing.get_context("spawn")  # a fork would copy the threads of torch and of the lane
        self._settings, self.folder, self._most = settings, folder, workers
        self._workers: list[_Worker] = []
        self._vigil = Vigil(self._context, workers)
        self._unchecked = settings.suts if any_foreign(settings.suts) else ()
        self._waiting: deque[Call] = deque()
        self._losses = Losses(settings)
        self._whole = True

    def check(self) -> None:
        """Import the systems under test, in a worker. UsageError for one that is none."""
        list(self._results([]))

    def reports(self, units: list[Unit]) -> Iterator[UnitReport]:
        """A report for each unit, in the order in which they end."""
        for report, folder in self._results([(_execute, unit) for unit in units]):
            self.folder = folder or self.folder  # where the next worker goes on
            yield report

    def close(self) -> None:
        """End the workers: those that were interrupted or broken at once, the others in bounded time."""
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers if self._whole else ():
            worker.ended(2 * LINGER_S)
        self._drop(*self._workers)

    def _drop(self, *workers: _Worker) -> None:
        """These are no more; another call would start fresh ones."""
        for worker in workers:
            if worker.process.exitcode is None:
                worker.process.kill()  # nothing of use runs there; servers of a lane end with it
        for worker in workers:
            worker.dismiss()
            worker.ended(REAP_S)
            self._workers.remove(worker)
        if any(worker.process.exitcode for worker in workers):
            _sweep(self._settings)

    def _results(self, calls: list[Call]) -> Iterator[Any]:
        """What the calls give that is not None; what one raised is raised."""
        checks: list[Call] = [(_check, self._unchecked)] if self._unchecked else []
        self._unchecked = ()
        self._waiting = deque([*checks, *calls])
        whole, self._whole = self._whole, False
        with interrupts_noted() as interrupts:
            while self._waiting or self._busy():
                yield from self._hand_out()
                busy = self._busy()
                connection.wait([end for worker in busy for end in (worker.pipe, worker.process.sentinel)], LOOK_S)
                if interrupts:
                    raise KeyboardInterrupt
                for worker in busy:
                    ended = worker.process.exitcode is not None  # before the look: what it said last is not missed
                    result = self._answer(worker)
                    if worker.busy and ended:  # a process that the client forked may hold the pipe open: no end comes
                        result = self._fallen(worker)
                    if result is not None:
                        yield result
                for worker in self._busy():
                    late = self._vigil.late(worker.place)
                    if late:
                        yield self._lost(worker, f"{late} does not come back, and nothing interrupts it", hung=True)
            if interrupts:
                raise KeyboardInterrupt
        self._whole = whole

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.busy]

    def _hand_out(self) -> Iterator[Any]:
        """Give what waits to who is free; what comes of it without a worker."""
        while self._waiting:
            over = self._losses.given_up(self._waiting[0][1])
            worker = None if over else self._free()
            if over is None and worker is None:
                return
            call = self._waiting.popleft()
            result = self._give(worker, call) if worker else (over, None)
            if result is not None:
                yield result

    def _free(self) -> _Worker | None:
        """A worker with nothing to do, a new one where there is room; None when all are at work."""
        idle = next((worker for worker in self._workers if not worker.busy), None)
        if idle is not None or len(self._workers) >= self._most:
            return idle
        place = next(n for n in range(self._most) if n not in [worker.place for worker in self._workers])
        with children_undisturbed():
            self._workers.append(_Worker(self._context, self._settings, self._vigil, place, self.folder))
        return self._workers[-1]

    def _give(self, worker: _Worker, call: Call) -> Any:
        try:
            worker.give(call)
        except OSError:
            if not worker.answered:
                return self._fallen(worker)
            self._drop(worker)  # it ended with nothing to do
            self._waiting.appendleft(call)
        return None

    def _answer(self, worker: _Worker) -> Any:
        """What the worker's call gave; None while it goes on, and where it gave None."""
        try:
            said = worker.answers.next()
            if said is None:
                return None
            raised, what = pickle.loads(said)
        except (EOFError, OSError):
            return self._fallen(worker)
        except Exception as error:  # the client wrote into our pipe
            at = self._vigil.at(worker.place)
            why = f"a worker process said what is no answer{at and f', in {at}'}: {told(error)}"
            return self._lost(worker, why)
        worker.call, worker.answered = None, True
        if raised:
            raise what
        return what

    def _fallen(self, worker: _Worker) -> Any:
        """What comes of a call whose worker ended: with its engine, or for a reason that may not come again."""
        worker.ended(2 * LINGER_S)  # its pipe has ended; the client may have closed it and go on
        why = self._vigil.told_of(worker.process.pid or 0, worker.process.exitcode)
        last_words = self._vigil.said(worker.place)
        assert worker.call is not None
        call = worker.call
        if not last_words and self._losses.again(call[1], why):
            worker.call = None
            self._drop(worker)
            self._waiting.appendleft(call)
            return None
        fell = self._settings.death == "process" and worker.process.exitcode == -signal.SIGKILL and last_words
        return self._lost(worker, why, fell=bool(fell), hung=bool(last_words))

    def _lost(self, worker: _Worker, why: str, *, fell: bool = False, hung: bool = False) -> Any:
        """The result of a unit that its worker took with it; UsageError where the client was imported only."""
        assert worker.call is not None
        call, worker.call = worker.call, None
        unit = call[1]
        self._drop(worker)
        if not isinstance(unit, Unit):
            raise UsageError(why) if call[0] is _check else HarnessError(why)
        report = self._losses.fell(unit, why) if fell else self._losses.report(unit, why, hung=hung)
        return report, None


class _Worker:
    """One process, and our end of the pipe to it."""

    def __init__(
        self, context: Any, settings: Settings, vigil: Vigil, place: int, folder: HistoryFolder | None
    ) -> None:
        self.pipe, theirs = context.Pipe()
        self.answers = Answers(self.pipe)
        self.process = context.Process(target=_work, args=(theirs, settings, vigil, place, folder))
        self.place = place
        self.call: Call | None = None
        self.answered = False
        try:
            self.process.start()
        finally:
            theirs.close()

    def give(self, call: Call) -> None:
        self.call = call
        self.pipe.send(call)

    @property
    def busy(self) -> bool:
        return self.call is not None

    def ended(self, seconds: float) -> bool:
        """Wait for its end. `Process.join` waits for ever where the client closed what a living process holds open."""
        until = time.monotonic() + seconds
        while self.process.exitcode is None and time.monotonic() < until:
            time.sleep(0.01)
        return self.process.exitcode is not None

    def dismiss(self) -> None:
        """It ends once it has nothing to do."""
        self.pipe.close()


def _sweep(settings: Settings) -> None:
    """A worker that was killed has left what its lane keeps on disk."""
    with suppress(Exception):  # a lane that does not even load left nothing
        lane = load_lane(settings.lane, settings.lane_options)
        getattr(lane, "sweep", lambda: None)()
        lane.close()


def _here(settings: Settings, units: list[Unit], folder: HistoryFolder | None) -> Iterator[UnitReport]:
    runner = _made(settings, folder)
    try:
        for unit in units:
            report = runner.execute(unit)
            if came():  # and what it raised was swallowed
                raise KeyboardInterrupt
            yield report
    finally:
        runner.close()


def _made(settings: Settings, folder: HistoryFolder | None) -> Runner:
    runner = Runner(settings)
    runner.widely = True  # a report puts findings in order
    if folder is not None:
        runner.on_history = folder.keep
    return runner


# -- in a worker -------------------------------------------------------------------------------------------------------


def _work(pipe: Any, settings: Settings, vigil: Vigil, place: int, folder: HistoryFolder | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it ends its workers
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare_streams()
    vigil.take(place)
    watchdog.VIGIL.append(vigil)
    try:
        _answer_calls(pipe, settings, folder)
    finally:
        leave_in_time(0)  # before it waits for a client's threads and processes, which may never end
        if _runner is not None:
            _runner.close()


def _answer_calls(pipe: Any, settings: Settings, folder: HistoryFolder | None) -> None:
    global _runner, _folder
    own = os.getpid()
    while True:
        try:
            function, argument = pipe.recv()
        except (EOFError, OSError):
            return  # dismissed
        try:
            if _runner is None:
                _runner, _folder = _made(settings, folder), folder
            said = (False, function(argument))
        except Exception as error:
            said = (True, _portable(error))
        if os.getpid() != own:
            LEAVE(0)  # a fork of the client's that came back from it: one process answers a call
        try:
            send_answer(pipe, said)
        except OSError:
            return  # its parent is gone


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return HarnessError(told(error))
    return error


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers, and a client may be at work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        LEAVE(1)


def _check(names: tuple[str, ...]) -> None:
    assert _runner is not None
    limit, options = _runner.settings.hang_timeout, _runner.settings.sut_options
    for name in names:
        try:
            with outlived():
                imported(name, limit)
        except HarnessError as error:
            raise UsageError(f"importing {name!r}: {error}") from error
    with outlived():
        check_options(dict.fromkeys(names, options), limit)


def _execute(unit: Unit) -> tuple[UnitReport, HistoryFolder | None]:
    assert _runner is not None
    watchdog.VIGIL[-1].begin(unit.scenario)
    return _runner.execute(unit), _folder
