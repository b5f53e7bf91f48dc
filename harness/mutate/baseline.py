"""The unmutated run: which check runs which lines, how long each takes, and which fail even so.

It runs in a child, so that the warm process stays as it was; what the child imported is imported there afterwards.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from harness.mutate.budget import Budget
from harness.mutate.checks import Check, Finding, one_line
from harness.mutate.marks import Marks
from harness.mutate.program import Program

# Never imported into the warm process: they start threads, and a fork with threads is not safe.
HEAVY = ("torch", "ray", "uvicorn", "sglang", "transformers")


@dataclass
class Measured:
    """One check, unmutated: wall and CPU seconds, steps in the targets, what it found (then it is of no use)."""

    seconds: float = 0.0
    cpu: float = 0.0
    steps: int = 0
    findings: list[Finding] = field(default_factory=list)
    heavy: bool = False


@dataclass
class Baseline:
    """All checks: `lines[check][file]` are the target lines that it runs; `modules` is what running them imported."""

    measured: list[Measured]
    lines: list[dict[str, frozenset[int]]]
    modules: list[str]

    def dump(self) -> dict[str, Any]:
        """As JSON-able data, for the cache."""
        return {
            "measured": [
                [m.seconds, m.cpu, m.steps, [list(astuple(f)) for f in m.findings], m.heavy] for m in self.measured
            ],
            "lines": [{path: sorted(found) for path, found in files.items()} for files in self.lines],
            "modules": self.modules,
        }

    @classmethod
    def load(cls, data: dict[str, Any], checks: int) -> Baseline:
        """The reverse of `dump`; one of the errors that `Cache.get` expects for what is none of so many checks."""
        measured = [Measured(s, c, n, [Finding(*f) for f in found], h) for s, c, n, found, h in data["measured"]]
        lines = [{path: frozenset(found) for path, found in files.items()} for files in data["lines"]]
        modules = [str(name) for name in data["modules"]]
        numbers = [n for m in measured for n in (m.seconds, m.cpu, m.steps)]
        if len(measured) != checks or len(lines) != checks or not all(isinstance(n, int | float) for n in numbers):
            raise ValueError("a baseline of something else")
        return cls(measured, lines, modules)

    def usable(self, check: int) -> bool:
        """The check holds on unmutated code."""
        return not self.measured[check].findings

    def covering(self, path: str, lines: Iterable[int]) -> list[int]:
        """The usable checks that run one of these lines, fastest first."""
        wanted = set(lines)
        found = [
            i for i, files in enumerate(self.lines) if self.usable(i) and not wanted.isdisjoint(files.get(path, ()))
        ]
        return sorted(found, key=self.speed)

    def speed(self, check: int) -> tuple[bool, int, int]:
        """Sorts fastest first. Times count by powers of two, so that small noise does not change the order."""
        measured = self.measured[check]
        return measured.heavy, int(measured.cpu * 1000).bit_length(), check


def measure(
    checks: Sequence[Check],
    program: Program,
    marks: Marks,
    tell: Callable[[int], None] = lambda i: None,
) -> Baseline:
    """Run every check once, with the marks in place. Call it in a process of its own.

    Caches are emptied before each check, so that every check runs the lines that it depends on.
    """
    before = set(sys.modules)
    measured: list[Measured] = []
    lines: list[dict[str, frozenset[int]]] = []
    with warnings.catch_warnings(), program.computing(program.sources):
        warnings.simplefilter("ignore")
        for i, check in enumerate(checks):
            tell(i)
            program.forget()
            marks.take()
            measured.append(run_one(check, program.budget))
            lines.append(marks.take())
    return Baseline(measured, lines, sorted(set(sys.modules) - before))


def run_one(check: Check, budget: Budget) -> Measured:
    """Run one check and measure it."""
    threads = threading.active_count()
    out = Measured()
    budget.start()
    wall, cpu = time.perf_counter(), time.process_time()
    with _heavy_imports() as heavy:
        try:
            out.findings = check.run()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            out.findings = [Finding("", one_line(error), crash=True)]
    out.seconds, out.cpu = time.perf_counter() - wall, time.process_time() - cpu
    out.steps = budget.used
    out.heavy = threading.active_count() > threads or bool(heavy)
    return out


@contextlib.contextmanager
def _heavy_imports() -> Iterator[set[str]]:
    """Which heavy modules are imported inside: also by an import statement that finds them already there."""
    found: set[str] = set()
    real = builtins.__import__

    def watching(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in HEAVY:
            found.add(name)
        return real(name, *args, **kwargs)

    watching.__module__, watching.__name__, watching.__qualname__ = "builtins", "__import__", "__import__"  # it pickles
    builtins.__import__ = watching
    try:
        yield found
    finally:
        builtins.__import__ = real


def warm(modules: Sequence[str]) -> Iterator[str]:
    """Import into this process what the baseline imported, but nothing heavy; yields what could not be."""
    import importlib

    for name in modules:
        if name.split(".")[0] in HEAVY or name in sys.modules:
            continue
        try:
            importlib.import_module(name)
        except Exception:
            yield name
