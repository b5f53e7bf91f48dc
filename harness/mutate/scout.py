"""Measures the baseline in a child of the warm process, and survives a check that kills or hangs it."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from harness.mutate import child
from harness.mutate.baseline import Baseline, measure, warm
from harness.mutate.budget import Budget
from harness.mutate.checks import Check, Finding
from harness.mutate.source import Source

SILENCE_S = 120.0
ATTEMPTS = 5


class _Gone:
    """A check that ended the scout; from then on it only says so."""

    def __init__(self, check: Check, text: str) -> None:
        self.id, self.rules, self.path, self._text = check.id, check.rules, check.path, text

    def run(self) -> list[Finding]:
        return [Finding("", self._text, crash=True)]


def baseline(
    checks: Sequence[Check],
    sources: Sequence[Source],
    budget: Budget,
    enter: Callable[[], None],
    leave: Callable[[], None],
    tick: Callable[[int], None] = lambda done: None,
) -> Baseline:
    """Measure all checks. One that ends or hangs the process unmutated is marked as of no use."""
    left: list[Check] = list(checks)
    for _ in range(ATTEMPTS):
        progress = child.Progress()

        def work(progress: child.Progress = progress) -> Baseline:
            enter()
            found = measure(left, sources, budget, lambda i: progress.step(i, i))
            with contextlib.suppress(Exception):
                leave()
            return found

        done, value = _in_child(work, progress, tick)
        at, _ran = progress.read()
        progress.close()
        if done:
            result: Baseline = value
            warm_up(result)
            return result
        if not 0 <= at < len(left):
            break
        left[at] = _Gone(left[at], f"it ends the process on unmutated code ({value})")
    raise RuntimeError("the unmutated run ends its process again and again")


def warm_up(found: Baseline) -> None:
    """Import here what running the checks imported in the child, so that no later child has to."""
    list(warm(found.modules))


def _in_child(work: Callable[[], Any], progress: child.Progress, tick: Callable[[int], None]) -> tuple[bool, Any]:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            child._quiet()
            data = pickle.dumps(work())
            with os.fdopen(write, "wb") as file:
                file.write(data)
        finally:
            os._exit(0)
    os.close(write)
    data, last, seen = b"", time.monotonic(), -1
    said = "it ended by itself"
    try:
        while True:
            ready, _, _ = select.select([read], [], [], 0.2)
            if ready:
                more = os.read(read, 1 << 20)
                if not more:
                    break
                data += more
                last = time.monotonic()
            at, _ = progress.read()
            if at != seen:
                seen, last = at, time.monotonic()
                tick(at)
            if time.monotonic() - last > SILENCE_S:
                said = f"it hung for {SILENCE_S:.0f} s"
                break
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not data:
        return False, said
    try:
        return True, pickle.loads(data)
    except Exception:
        return False, said
