"""Forks one child per mutant, at most `workers` at a time, and collects what they say.

The parent only waits: a child that is silent past its wall clock limit is killed with everything it started.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import selectors
import signal
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.mutate import child
from harness.mutate.budget import Budget
from harness.mutate.checks import Check
from harness.mutate.child import Job, Progress, Report

WALL_MINIMUM = 15.0
WALL_FACTOR = 60.0
IDLE_POLL_S = 0.25
IDLE_MINIMUM_S = 1.5
IDLE_FACTOR = 10.0
_TIMEOUTS = (signal.SIGPROF, signal.SIGXCPU, signal.SIGKILL)


@dataclass
class _Child:
    job: Job
    pid: int
    fd: int
    progress: Progress
    deadline: float
    started: float
    data: bytearray = field(default_factory=bytearray)
    at: tuple[int, int] = (-1, 0)
    busy: float | None = None
    since: float = 0.0

    @property
    def complete(self) -> bool:
        return len(self.data) >= 8 and len(self.data) >= 8 + struct.unpack("q", self.data[:8])[0]


def _busy(pid: int) -> float | None:
    """CPU seconds used by a process whose threads all sleep; None when one could run (or this cannot be known here)."""
    try:
        used = 0.0
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "S":
                return None
            used += float(fields[11]) + float(fields[12])
        return used
    except (OSError, ValueError, IndexError):
        return None


class Pool:
    """Runs jobs in forked children of this process."""

    def __init__(
        self,
        checks: Sequence[Check],
        budget: Budget,
        workers: int,
        enter: Callable[[], None] = lambda: None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._checks, self._budget, self._workers = checks, budget, max(1, workers)
        self._enter, self._leave = enter, leave
        self._running: dict[int, _Child] = {}
        self._looked = 0.0

    def run(
        self, jobs: Iterable[Job], tick: Callable[[list[str]], None] = lambda ids: None
    ) -> Iterator[tuple[Job, Report]]:
        """Yield each job with its report as children end. `tick` is told a few times a second what runs.

        When the caller stops early, or is interrupted, the children that still run are killed.
        """
        waiting = iter(jobs)
        gc.collect()
        gc.freeze()
        more = True
        try:
            with selectors.DefaultSelector() as selector:
                while True:
                    while more and len(self._running) < self._workers:
                        job = next(waiting, None)
                        if job is None:
                            more = False
                            break
                        started = self._fork(job)
                        selector.register(started.fd, selectors.EVENT_READ, started)
                    if not self._running:
                        return
                    tick([c.job.id for c in self._running.values()])
                    for done in self._wait(selector):
                        selector.unregister(done.fd)
                        yield done.job, self._bury(done)
        finally:
            for left in list(self._running.values()):
                self._kill(left)
                self._bury(left)
            gc.unfreeze()

    def _fork(self, job: Job) -> _Child:
        read, write = os.pipe()
        progress = Progress()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            child.main(job, self._checks, self._budget, write, progress, self._enter, self._leave)
        os.close(write)
        os.set_blocking(read, False)
        now = time.monotonic()
        wall = WALL_MINIMUM + WALL_FACTOR * sum(s.seconds for s in job.steps)
        made = _Child(job, pid, read, progress, now + wall, now)
        self._running[pid] = made
        return made

    def _wait(self, selector: selectors.BaseSelector) -> list[_Child]:
        """The children that have said everything, have ended, or had to be killed."""
        soonest = min(c.deadline for c in self._running.values())
        done = []
        for key, _ in selector.select(min(0.2, max(0.0, soonest - time.monotonic()))):
            found: _Child = key.data
            data = b"x"
            with contextlib.suppress(BlockingIOError):
                while data:
                    data = os.read(found.fd, 65536)
                    found.data += data
            if found.complete or not data:
                done.append(found)
        now = time.monotonic()
        if now - self._looked >= IDLE_POLL_S:
            self._looked = now
            for found in self._running.values():
                if found not in done and (now > found.deadline or self._stuck(found, now)):
                    self._kill(found)
                    done.append(found)
        return done

    @staticmethod
    def _stuck(found: _Child, now: float) -> bool:
        """Every thread of the child sleeps, and has for some time, although unmutated the check would be over."""
        at = found.progress.read()
        busy = _busy(found.pid)
        if at != found.at or busy is None or busy != found.busy:
            found.at, found.busy, found.since = at, busy, now
            return False
        usual = next((s.seconds for s in found.job.steps if s.check == at[0]), 0.0)
        return now - found.since > IDLE_MINIMUM_S + IDLE_FACTOR * usual

    @staticmethod
    def _kill(found: _Child) -> None:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(found.pid, signal.SIGKILL)

    def _bury(self, found: _Child) -> Report:
        if found.complete:
            # It has said everything; give its clean-up the time that is left, then end it and what it started.
            while os.waitpid(found.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > found.deadline:
                    self._kill(found)
                    os.waitpid(found.pid, 0)
                    break
                time.sleep(0.0005)
            status = 0
        else:
            _, status = os.waitpid(found.pid, 0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(found.pid, signal.SIGKILL)
        os.close(found.fd)
        del self._running[found.pid]
        check, ran = found.progress.read()
        found.progress.close()
        if found.complete:
            report: Report = pickle.loads(bytes(found.data[8:]))
            return report
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        said = signal.Signals(number).name if number else f"exit {os.waitstatus_to_exitcode(status)}"
        ending = "timeout" if number in _TIMEOUTS else "crash"
        text = f"CPU or wall clock limit ({said})" if ending == "timeout" else f"the process ended by itself ({said})"
        return Report(ending, check, "", text, ran, time.monotonic() - found.started)
