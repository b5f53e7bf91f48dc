"""What a mutant is, whatever it was made from, and what can be said of it after a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from harness.errors import UsageError

VerdictName = Literal[
    "killed", "misattributed", "crash", "timeout", "survived", "not covered", "equivalent", "elsewhere", "error"
]
"""`elsewhere`: no recording shows it, and a lane that would is named."""
DETECTED: frozenset[str] = frozenset({"killed", "crash", "timeout"})


class Op(Protocol):
    """How a mutant changes the program. What cannot be undone is applied in a process of its own."""

    kind: str

    def apply(self, target: str, live: Any) -> Callable[[], None] | None:
        """Change the running program. PatternGoneError when what it edits is not there any more.

        What is returned undoes it; None where nothing can.
        """
        ...

    def describe(self) -> str:
        """What it does, in a few words."""
        ...


@dataclass(frozen=True)
class Mutant:
    """One change and who must notice it.

    `target` is `module:qualname` of a function, or `module:name` of a table. `breaks` are rule ids: one of them must
    kill it; a mutant that breaks nothing in particular (generic) may be killed by anything. `origin` says where the
    defect was seen.
    """

    id: str
    target: str
    op: Op
    breaks: frozenset[str] = frozenset()
    origin: str = ""
    note: str = ""

    @property
    def module(self) -> str:
        """The module of the target."""
        return self.target.partition(":")[0]

    @property
    def qualname(self) -> str:
        """The function or table inside the module."""
        return self.target.partition(":")[2]


class PatternGoneError(UsageError):
    """What a mutant edits is not in the code any more; the text names the mutant's target and the pattern."""


@dataclass(frozen=True)
class Place:
    """Where a mutant is in its file: lines from 1, columns from 1, the end exclusive (as in Stryker's schema)."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass
class Result:
    """What became of one mutant.

    `by` is the check that killed it, `rule` the rule that this check judged, `detail` one line of what it said.
    `checks` are the ids of the checks that could have seen it; `ran` counts those that did run.
    `killers` are all rules found violated before the run stopped. `seconds` is wall time, `cpu` the CPU time of its
    process, both in seconds. `rerun`: it was run again in a fresh interpreter.
    """

    id: str
    verdict: VerdictName
    op: str = ""
    target: str = ""
    by: str = ""
    rule: str = ""
    detail: str = ""
    breaks: list[str] = field(default_factory=list)
    origin: str = ""
    place: Place | None = None
    original: str = ""
    replacement: str = ""
    checks: list[str] = field(default_factory=list)
    ran: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    cached: bool = False
    rerun: bool = False
    killers: list[str] = field(default_factory=list)
    description: str = ""

    @property
    def generic(self) -> bool:
        """Made by a generic operator, not from a catalogue."""
        return not self.breaks
