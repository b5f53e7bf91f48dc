"""What goes between the warm process and its children: the jobs, what is said of them, and how far a child is."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Undo = Callable[[], None]

CPU_MINIMUM = 1.5
CPU_FACTOR = 15.0
VALIDATING = -2


@dataclass(frozen=True)
class Step:
    """One check to run: its index, and what it needs unmutated (steps, CPU seconds, wall seconds).

    `heavy`: it imports what the warm process must not have, so it runs last. `same`: what it does, where others do that
    too: one of each comes before any is done again elsewhere.
    """

    check: int
    steps: int
    cpu: float
    seconds: float
    heavy: bool = False
    same: str = ""

    @property
    def cpu_limit(self) -> float:
        """CPU seconds after which the check is ended."""
        return self.cpu * CPU_FACTOR + CPU_MINIMUM


@dataclass(frozen=True)
class Job:
    """One mutant to run. `breaks` are its declared rules; the first `declared` steps judge at least one of them.

    `enough`: after so many steps that noticed nothing the others are left (0: never). `site` is the generic mutant.
    `members`: other jobs whose mutants `apply` puts into the program together; `crowd` holds them.
    `everything` runs all steps, for a full kill matrix. Jobs of one `group` may share a child, one after the other:
    their `apply` returns what undoes it. A job without a group has a child of its own.
    """

    id: str
    apply: Callable[[], Undo | None]
    steps: tuple[Step, ...]
    breaks: frozenset[str] = frozenset()
    declared: int = 0
    everything: bool = False
    group: str = ""
    enough: int = 0
    site: Any = None
    members: tuple[Job, ...] = ()
    crowd: Any = None


@dataclass
class Report:
    """What the child saw. `ending` is survived, killed, misattributed, crash, timeout, or error (it cannot be made).

    `shared`: other mutants had been there before in the same child. A `suspect` survived the checks `met` and was
    left at that. `parts`: the members of a job that a check noticed, with the check.
    """

    ending: str
    check: int = -1
    rule: str = ""
    text: str = ""
    ran: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    found: list[tuple[int, str]] = field(default_factory=list)
    shared: bool = False
    met: list[int] = field(default_factory=list)
    parts: list[tuple[str, int]] = field(default_factory=list)


class Progress:
    """Shared memory in which a child says which job and check it runs, so that a killed child can be understood."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 24)
        self.step(-1, 0)

    def step(self, check: int, ran: int, job: int = 0) -> None:
        """From the child. The check is -1 before the first one, VALIDATING while earlier verdicts are made sure of."""
        self._map[:24] = struct.pack("qqq", check, ran, job)

    def read(self) -> tuple[int, int, int]:
        """From the parent: the check that ran last, how many had begun, and the place of the job in its batch."""
        check, ran, job = struct.unpack("qqq", self._map[:24])
        return check, ran, job

    def close(self) -> None:
        """Give the memory back."""
        self._map.close()
