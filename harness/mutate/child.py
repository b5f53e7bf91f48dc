"""What happens in the forked child: change the program, run checks until one notices, say what happened, undo, next.

A child runs one batch of jobs. What a mutant leaves behind could make a later one look killed, so every check that
killed is run once more on unmutated code before the verdicts leave the child; where it does not hold then, or the
child is unclean in a way that shows, the mutants are run again, each in a child of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from harness.mutate.budget import Budget
from harness.mutate.checks import Check, one_line
from harness.mutate.jobs import VALIDATING, Job, Progress, Report, Step, Undo
from harness.mutate.mutant import PatternGoneError
from harness.mutate.pursuit import Killers, pursue, run_step

FLUSH_S = 2.0
_PDEATHSIG = 1
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None

Said = (
    tuple[Literal["reports"], list[tuple[int, Report]]]
    | tuple[Literal["alone"], list[int]]
    | tuple[Literal["end", "late", "broken"], str]
)
"""What a child says: verdicts by place in the batch; jobs that need a child of their own; that it is done."""


class _Child:
    def __init__(
        self,
        batch: Sequence[Job],
        checks: Sequence[Check],
        budget: Budget,
        say: Callable[[Said], None],
        progress: Progress,
        leave: Callable[[], None],
        deadline: float | None,
        killers: Killers,
    ) -> None:
        self._batch, self._checks, self._budget, self._say = batch, checks, budget, say
        self._progress, self._leave, self._deadline = progress, leave, deadline
        self._killers = killers
        self._pending: list[tuple[int, Report]] = []
        self._threads = threading.active_count()
        self._flushed = time.monotonic()

    def work(self) -> None:
        """All jobs, or as many as this child can be trusted with."""
        for at, job in enumerate(self._batch):
            if at and self._deadline is not None and time.monotonic() > self._deadline:
                if self._flush():
                    self._say(("late", ""))
                return
            report, undo = self._one(at, job)
            report.shared = at > 0
            self._pending.append((at, report))
            if len(self._batch) == 1:
                self._say(("reports", self._pending))
                break
            clean = undo is not None and self._undone(undo)
            last = not clean or at + 1 == len(self._batch)
            if (last or time.monotonic() - self._flushed > FLUSH_S) and not self._flush():
                return
            if last:
                break
        self._say(("end", ""))

    def _one(self, at: int, job: Job) -> tuple[Report, Undo | None]:
        started, cpu = time.perf_counter(), time.process_time()
        ran = 0

        def tell(step: Step) -> None:
            nonlocal ran
            ran += 1
            self._progress.step(step.check, ran, at)
            signal.setitimer(signal.ITIMER_PROF, step.cpu_limit)

        self._progress.step(-1, 0, at)
        undo: Undo | None = None
        try:
            undo = job.apply()
        except PatternGoneError as error:
            report = Report("error", text=str(error))
        except Exception as error:
            report = Report("error", text=f"cannot make the mutant: {one_line(error)}")
        else:
            report = pursue(job, self._checks, self._budget, tell, self._killers)
        signal.setitimer(signal.ITIMER_PROF, 0)
        report.seconds, report.cpu = time.perf_counter() - started, time.process_time() - cpu
        return report, undo

    def _undone(self, undo: Undo) -> bool:
        """The program is as it was, as far as can be seen."""
        try:
            self._leave()
            undo()
        except BaseException:
            return False
        if threading.active_count() > self._threads:
            return False
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        return False

    def _flush(self) -> bool:
        """Say what is certain by now. False when this child can say no more: unmutated code fails here."""
        steps = {s.check: s for job in self._batch for s in job.steps}
        doubtful = {r.check for _, r in self._pending if r.shared and r.check >= 0}
        at = self._pending[-1][0] if self._pending else 0
        bad = False
        for check in sorted(doubtful):
            self._progress.step(VALIDATING, check, at)
            signal.setitimer(signal.ITIMER_PROF, steps[check].cpu_limit)
            bad = bool(run_step(steps[check], self._checks, self._budget))
            if bad:
                break
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._say(("reports", [(i, r) for i, r in self._pending if not bad or not r.shared]))
        if bad:
            self._say(("alone", [i for i, r in self._pending if r.shared]))
            self._say(("end", ""))
        self._pending = []
        self._flushed = time.monotonic()
        return not bad


def main(
    batch: Sequence[Job],
    checks: Sequence[Check],
    budget: Budget,
    out: int,
    progress: Progress,
    enter: Callable[[], None],
    leave: Callable[[], None],
    deadline: float | None,
    killers: Killers,
) -> None:
    """The whole life of a child; it never returns. Writes pickled `Said`s to `out`."""
    try:
        os.setpgid(0, 0)
        quiet()
        _limits(sum(s.cpu_limit for job in batch for s in job.steps))
        enter()

        def say(said: Said) -> None:
            _write(out, pickle.dumps(said))

        _Child(batch, checks, budget, say, progress, leave, deadline, killers).work()
        with contextlib.suppress(BaseException):
            leave()
    except BaseException as error:
        with contextlib.suppress(OSError):
            _write(out, pickle.dumps(("broken", one_line(error))))
    finally:
        os._exit(0)


def quiet() -> None:
    """Signals as in a new process, nothing read, nothing printed; the child ends when its parent does."""
    if _PRCTL is not None:
        _PRCTL(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGPROF, signal.SIGXCPU):
        signal.signal(name, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    sys.stdout = sys.__stdout__ or sys.stdout
    sys.stderr = sys.__stderr__ or sys.stderr


def _limits(cpu: float) -> None:
    seconds = min(int(cpu) * 2 + 10, 1 << 30)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _write(fd: int, data: bytes) -> None:
    view: Any = memoryview(struct.pack("q", len(data)) + data)
    while view:
        view = view[os.write(fd, view) :]
