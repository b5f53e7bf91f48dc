"""What happens in the forked child: change the program, run checks until one notices, say what happened.

Nothing here returns to the caller: the child ends with `os._exit`, and nothing has to be restored.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import pickle
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.mutate.budget import Budget, BudgetSpent, limit_for
from harness.mutate.checks import Check, Finding, one_line
from harness.mutate.mutant import PatternGoneError

CPU_MINIMUM = 2.0
CPU_FACTOR = 30.0
_PDEATHSIG = 1
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Step:
    """One check to run: its index, and what it needs unmutated (steps, CPU seconds, wall seconds)."""

    check: int
    steps: int
    cpu: float
    seconds: float

    @property
    def cpu_limit(self) -> float:
        """CPU seconds after which the check is ended."""
        return self.cpu * CPU_FACTOR + CPU_MINIMUM


@dataclass(frozen=True)
class Job:
    """One mutant to run. `breaks` are its declared rules; the first `declared` steps judge at least one of them.

    `everything` runs all steps, for a full kill matrix.
    """

    id: str
    apply: Callable[[], None]
    steps: tuple[Step, ...]
    breaks: frozenset[str] = frozenset()
    declared: int = 0
    everything: bool = False


@dataclass
class Report:
    """What the child saw. `ending` is survived, killed, misattributed, crash, timeout, or error (it cannot be made)."""

    ending: str
    check: int = -1
    rule: str = ""
    text: str = ""
    ran: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    found: list[tuple[int, str]] = field(default_factory=list)


def pursue(job: Job, checks: Sequence[Check], budget: Budget, tell: Callable[[Step], None]) -> Report:
    """Run the steps of a job in order and judge what they find. The mutant is already in place."""
    report = Report("survived")
    other: Report | None = None
    for at, step in enumerate(job.steps):
        if at == job.declared and other is not None and not job.everything:
            break  # no declared rule noticed, another one did: nothing that follows can change the verdict
        tell(step)
        budget.start(limit_for(step.steps))
        report.ran += 1
        for finding in _run(checks[step.check]):
            if not finding.crash:
                report.found.append((step.check, finding.rule))
            ending = _ending(finding, job)
            if ending == "killed" and report.ending != "killed":
                report.ending, report.check, report.rule, report.text = ending, step.check, finding.rule, finding.text
            elif ending != "killed" and other is None:
                other = Report(ending, step.check, finding.rule, finding.text)
        if not job.everything and (report.ending == "killed" or (other is not None and not job.breaks)):
            break
    if report.ending == "survived" and other is not None:
        report.ending, report.check, report.rule, report.text = other.ending, other.check, other.rule, other.text
    return report


def _run(check: Check) -> list[Finding]:
    try:
        return check.run()
    except BudgetSpent as error:
        return [Finding("", str(error), crash=True)]
    except BaseException as error:
        return [Finding("", one_line(error), crash=True)]


def _ending(finding: Finding, job: Job) -> str:
    if finding.crash:
        return "timeout" if "step budget spent" in finding.text else "crash"
    if job.breaks:
        return "killed" if finding.rule in job.breaks else "misattributed"
    return "killed"


class Progress:
    """Shared memory in which a child says which check it runs, so that a killed child can be understood."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 16)
        self.step(-1, 0)

    def step(self, check: int, ran: int) -> None:
        """From the child."""
        self._map[:16] = struct.pack("qq", check, ran)

    def read(self) -> tuple[int, int]:
        """From the parent: the check that ran last, and how many had begun."""
        check, ran = struct.unpack("qq", self._map[:16])
        return check, ran

    def close(self) -> None:
        """Give the memory back."""
        self._map.close()


def main(
    job: Job, checks: Sequence[Check], budget: Budget, out: int, progress: Progress, enter: Any, leave: Any
) -> None:
    """The whole life of a child. Writes one pickled Report to `out`."""
    started, cpu = time.perf_counter(), time.process_time()
    ran = 0

    def tell(step: Step) -> None:
        nonlocal ran
        ran += 1
        progress.step(step.check, ran)
        signal.setitimer(signal.ITIMER_PROF, step.cpu_limit)

    try:
        os.setpgid(0, 0)
        quiet()
        _limits(sum(s.cpu_limit for s in job.steps))
        enter()
        try:
            job.apply()
        except PatternGoneError as error:
            report = Report("error", text=str(error))
        except Exception as error:
            report = Report("error", text=f"cannot make the mutant: {one_line(error)}")
        else:
            report = pursue(job, checks, budget, tell)
        report.seconds, report.cpu = time.perf_counter() - started, time.process_time() - cpu
        _write(out, pickle.dumps(report))
        with contextlib.suppress(BaseException):
            leave()
    except BaseException as error:
        with contextlib.suppress(OSError):
            _write(out, pickle.dumps(Report("crash", text=one_line(error))))
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
    seconds = int(cpu) + 5
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _write(fd: int, data: bytes) -> None:
    view = memoryview(struct.pack("q", len(data)) + data)
    while view:
        view = view[os.write(fd, view) :]
