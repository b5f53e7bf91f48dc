"""Forks children for batches of jobs, at most `workers` at a time, and collects what they say.

The parent only waits: a child that is silent past its wall clock limit is killed with everything it started. A job
that ended its child, or whose verdict is in doubt, is run again as the first and only one of a new child.
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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.mutate import child
from harness.mutate.budget import Budget
from harness.mutate.checks import Check
from harness.mutate.jobs import VALIDATING, Job, Progress, Report
from harness.mutate.pursuit import Killers

WALL_MINIMUM = 15.0
WALL_FACTOR = 60.0
IDLE_POLL_S = 0.25
IDLE_MINIMUM_S = 2.0
IDLE_FACTOR = 10.0
BATCH = 80
SHARES = 4
"""Every worker gets at least so many batches, so that none is left with a long one at the end."""
WAITING = 2
"""Beside every worker at most so many children may wait."""
_TIMEOUTS = (signal.SIGPROF, signal.SIGXCPU, signal.SIGKILL)


@dataclass
class _Child:
    batch: Sequence[Job]
    pid: int
    fd: int
    progress: Progress
    started: float
    data: bytearray = field(default_factory=bytearray)
    left: dict[int, Job] = field(default_factory=dict)
    alone: list[int] = field(default_factory=list)
    reports: list[tuple[Job, Report]] = field(default_factory=list)
    ended: str = ""
    broken: str = ""
    at: tuple[int, int, int] = (-1, 0, -1)
    stepped: float = 0.0
    busy: float | None = None
    since: float = 0.0

    def hear(self) -> None:
        """Take in what has come whole."""
        while len(self.data) >= 8:
            (size,) = struct.unpack("q", self.data[:8])
            if len(self.data) < 8 + size:
                return
            kind, what = pickle.loads(bytes(self.data[8 : 8 + size]))
            del self.data[: 8 + size]
            if kind == "reports":
                self.reports += [(self.left.pop(at), report) for at, report in what]
            elif kind == "alone":
                self.alone += what
            else:
                self.ended = kind
                self.broken = what

    def usual(self) -> float:
        """Wall seconds that the check now running takes unmutated."""
        check, ran, job = self.at
        check = ran if check == VALIDATING else check
        return next((s.seconds for s in self.batch[job].steps if s.check == check), 0.0)

    def gone(self) -> bool:
        """It is dead, and all that it said has been heard."""
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self.fd, 65536):
                self.data += more
        self.hear()
        return True

    @property
    def idle(self) -> bool:
        """It has slept since it was looked at before."""
        return self.busy is not None and time.monotonic() - self.since > IDLE_POLL_S

    @property
    def running(self) -> str:
        """The job that it is at."""
        return self.batch[self.progress.read()[2]].id


def _busy(pid: int) -> float | None:
    """CPU seconds used by a process whose threads all sleep, and by the processes that it started.

    None when one of them could run (or this cannot be known here).
    """
    try:
        used = 0.0
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "S":
                return None
            used += float(fields[11]) + float(fields[12])
            for started in (task / "children").read_text().split():
                below = _busy(int(started))
                if below is None:
                    return None
                used += below
        return used
    except (OSError, ValueError, IndexError):
        return None


def batches(jobs: Sequence[Job], workers: int) -> Iterator[list[Job]]:
    """Jobs that follow each other and are of one group share a child."""
    size = max(1, min(BATCH, len(jobs) // (workers * SHARES)))
    batch: list[Job] = []
    for job in jobs:
        if batch and (not job.group or job.group != batch[0].group or len(batch) >= size):
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


class Pool:
    """Runs jobs in forked children of this process."""

    def __init__(
        self,
        checks: Sequence[Check],
        budget: Budget,
        workers: int,
        enter: Callable[[], None] = lambda: None,
        leave: Callable[[], None] = lambda: None,
        killers: Killers | None = None,
    ) -> None:
        self._checks, self._budget, self._workers = checks, budget, max(1, workers)
        self._enter, self._leave = enter, leave
        self._killers = killers or Killers()
        self._running: dict[int, _Child] = {}
        self._looked = 0.0

    def run(
        self,
        jobs: Sequence[Job],
        tick: Callable[[list[str]], None] = lambda ids: None,
        deadline: float | None = None,
    ) -> Iterator[tuple[Job, Report]]:
        """Yield each job with its report as they come. `tick` is told a few times a second what runs.

        No job is begun after `deadline` (of time.monotonic()). When the caller stops early, or is interrupted, the
        children that still run are killed.
        """
        waiting = deque(batches(jobs, self._workers))
        gc.freeze()  # a collection in a child would write into, so copy, every page
        try:
            with selectors.DefaultSelector() as selector:
                while True:
                    late = deadline is not None and time.monotonic() > deadline
                    while waiting and not late and self._room():
                        started = self._fork(waiting.popleft(), deadline)
                        selector.register(started.fd, selectors.EVENT_READ, started)
                    if not self._running:
                        return
                    tick([c.running for c in self._running.values()])
                    for done in self._wait(selector):
                        selector.unregister(done.fd)
                        waiting.extendleft(reversed(self._bury(done)))
                        yield from self._told(done)
                    for found in list(self._running.values()):
                        yield from self._told(found)
        finally:
            for left in list(self._running.values()):
                self._kill(left)
                self._bury(left)
            gc.unfreeze()

    def _told(self, found: _Child) -> list[tuple[Job, Report]]:
        """What it has said and was not asked for yet; later children know what killed."""
        reports, found.reports = found.reports, []
        for job, report in reports:
            self._killers.learn(job, report)
        return reports

    def _room(self) -> bool:
        """One more child may run: those that only wait, likely for ever, leave their processor to others."""
        idle = sum(found.idle for found in self._running.values())
        return len(self._running) - min(idle, self._workers * WAITING) < self._workers

    def _fork(self, batch: Sequence[Job], deadline: float | None) -> _Child:
        read, write = os.pipe()
        progress = Progress()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            enter, leave, killers = self._enter, self._leave, self._killers
            child.main(batch, self._checks, self._budget, write, progress, enter, leave, deadline, killers)
        os.close(write)
        os.set_blocking(read, False)
        now = time.monotonic()
        made = _Child(batch, pid, read, progress, now, left=dict(enumerate(batch)), stepped=now)
        self._running[pid] = made
        return made

    def _wait(self, selector: selectors.BaseSelector) -> list[_Child]:
        """The children that have said everything, have ended, or had to be killed."""
        done = []
        for key, _ in selector.select(0.2):
            found: _Child = key.data
            data = b"x"
            with contextlib.suppress(BlockingIOError):
                while data:
                    data = os.read(found.fd, 65536)
                    found.data += data
            found.hear()
            if found.ended or not data:
                done.append(found)
        for found in self._running.values():  # what a dead child started may hold its pipe open for ever
            if found not in done and found.gone():
                done.append(found)
        now = time.monotonic()
        if now - self._looked >= IDLE_POLL_S:
            self._looked = now
            for found in self._running.values():
                if found not in done and self._stuck(found, now):
                    self._kill(found)
                    done.append(found)
        return done

    @staticmethod
    def _stuck(found: _Child, now: float) -> bool:
        """Every thread of the child sleeps, and has for some time, although unmutated the check would be over.

        So is a child that has been at one check for too long, whatever it does.
        """
        at = found.progress.read()
        busy = _busy(found.pid)
        if at != found.at:
            found.at, found.stepped = at, now
            found.busy, found.since = busy, now
            return False
        usual = found.usual()
        if now - found.stepped > WALL_MINIMUM + WALL_FACTOR * usual:
            return True
        if busy is None or busy != found.busy:
            found.busy, found.since = busy, now
            return False
        return now - found.since > IDLE_MINIMUM_S + IDLE_FACTOR * usual

    @staticmethod
    def _kill(found: _Child) -> None:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(found.pid, signal.SIGKILL)

    def _bury(self, found: _Child) -> list[list[Job]]:
        """Wait for its end, and say what is to be run again. Its last reports are added to `found.reports`."""
        if found.ended:
            # It has said everything; give its clean-up the time that is left, then end it and what it started.
            deadline = time.monotonic() + WALL_MINIMUM
            while os.waitpid(found.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
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
        found.at = found.progress.read()
        found.progress.close()
        return self._rest(found, status)

    @staticmethod
    def _rest(found: _Child, status: int) -> list[list[Job]]:
        left = found.left
        if found.ended == "late":
            return [[left[i]] for i in found.alone]
        if found.ended == "broken":
            text = f"the child could not run: {found.broken}"
            found.reports += [(job, Report("error", text=text)) for job in left.values()]
            return []
        alone = list(found.alone)
        if not found.ended and left:
            check, ran, at = found.at
            if check == VALIDATING:
                alone += [i for i in left if i <= at]
            elif at in left and at > 0:
                alone.append(at)
            elif at in left:
                found.reports.append((left.pop(at), _death(status, check, ran, time.monotonic() - found.started)))
        rest = [job for i, job in left.items() if i not in set(alone)]
        return [*([left[i]] for i in alone), *([rest] if rest else [])]


def _death(status: int, check: int, ran: int, seconds: float) -> Report:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    said: Any = signal.Signals(number).name if number else f"exit {os.waitstatus_to_exitcode(status)}"
    ending = "timeout" if number in _TIMEOUTS else "crash"
    text = f"CPU or wall clock limit ({said})" if ending == "timeout" else f"the process ended by itself ({said})"
    return Report(ending, check, "", text, ran, seconds)
