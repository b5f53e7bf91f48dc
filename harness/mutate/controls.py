"""Controls of a session: a function compiled again unchanged must survive, one that only raises must be noticed.

And mutants that shared a child with others are run once more, each in a child of its own: the verdict is the same.
"""

from __future__ import annotations

import ast
import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.mutate.baseline import Baseline
from harness.mutate.jobs import Job, Report
from harness.mutate.program import Program
from harness.mutate.sites import placed
from harness.mutate.source import Function, Source

IDENTITIES = 3
IDENTITY_CPU_S = 3.0
"""Where the checks of the identities take longer than this unmutated, some of them are left out."""
SAMPLE, ONE_IN = 8, 100
"""At most so many mutants, and one of so many, but two."""


@dataclass
class Control:
    """One control: `expect` is "survived" or "noticed". `mutant`: the one that is run again alone.

    `screened`: a mutant in checks that screening has left out.
    """

    id: str
    expect: str
    apply: Callable[[], Callable[[], None] | None]
    checks: list[int]
    report: Report | None = None
    mutant: str = ""
    screened: bool = False

    @property
    def wrong(self) -> str:
        """What is wrong with this session, or ""."""
        if self.report is None:
            return ""
        if self.mutant:
            found = "survived" if self.report.ending == "survived" else "noticed"
            return "" if found == self.expect else f"{self.id}: {found} alone, {self.expect} in a child with others"
        if self.screened and self.report.ending != "survived":
            return f"{self.id}: noticed in a check in which it changes no value ({self.report.text}); see --no-screen"
        if self.expect == "survived" and self.report.ending != "survived":
            return f"{self.id}: unchanged code did not survive ({self.report.ending}: {self.report.text})"
        if self.expect == "noticed" and self.report.ending == "survived":
            return f"{self.id}: a function that only raises was not noticed by {len(self.checks)} checks"
        return ""


def plan(program: Program, baseline: Baseline, failing: str = "") -> list[Control]:
    """Identity controls on the functions that most checks run through, and one forced failure on the first of them.

    `failing` is the module whose function is to fail, any when empty: a client that only ever fails breaks no promise.
    """
    found: list[tuple[int, Source, Function, list[int]]] = []
    for source in program.sources.values():
        for function in source.functions:
            body: Any = function.node.body[0]
            checks = baseline.covering(str(source.path), range(body.lineno, function.end_line + 1))
            if checks and function not in program.dead:
                found.append((len(checks), source, function, checks))
    found.sort(key=lambda f: -f[0])
    out = []
    if found:
        same = [(source, function) for _, source, function, _ in found[:IDENTITIES]]
        names = ", ".join(f"{source.name}:{function.qualname}" for source, function in same)
        every = sorted({check for _, _, _, checks in found[:IDENTITIES] for check in checks}, key=baseline.speed)
        out.append(Control(f"identity {names}", "survived", _unchanged(program, same), _some(every, baseline)))
    for _, source, function, checks in [f for f in found if failing in ("", f[1].name)][:1]:
        raising: Any = type(function.node)(
            **{name: getattr(function.node, name) for name in function.node._fields if hasattr(function.node, name)}
        )
        raised = ast.parse("raise RuntimeError('forced failure')").body[0]
        raising.body = [placed(_bare(raised), function.node.body[0]), *function.node.body]
        ast.copy_location(raising, function.node)
        out.append(
            Control(
                f"forced failure {source.name}:{function.qualname}",
                "noticed",
                _swap(program, source, function, raising),
                checks,
            )
        )
    return out


def _some(checks: Sequence[int], baseline: Baseline) -> list[int]:
    """As many checks, of all kinds, as take `IDENTITY_CPU_S`, in the order in which they are given."""
    left = IDENTITY_CPU_S
    kept: set[int] = set()
    for check in sorted(checks, key=lambda check: zlib.crc32(str(check).encode())):
        left -= baseline.measured[check].cpu
        if kept and left < 0:
            break
        kept.add(check)
    return [check for check in checks if check in kept]


def alone(jobs: Sequence[Job], reports: Mapping[str, Report]) -> list[tuple[Control, Job]]:
    """A sample of the jobs that shared a child, each to be run in a child of its own."""
    shared = [j for j in jobs if j.id in reports and reports[j.id].shared and reports[j.id].ending != "error"]
    shared.sort(key=lambda j: zlib.crc32(j.id.encode()))
    out = []
    for job in shared[: sample(len(jobs))]:
        expect = "survived" if reports[job.id].ending == "survived" else "noticed"
        control = Control(f"alone {job.id}", expect, job.apply, [s.check for s in job.steps], mutant=job.id)
        out.append((control, dataclasses.replace(job, group="", id=control.id, enough=0)))
    return out


def sample(mutants: int) -> int:
    """How many of so many mutants the controls take."""
    return max(2, min(SAMPLE, mutants // ONE_IN))


def _bare(node: Any) -> Any:
    for part in ast.walk(node):
        for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            part.__dict__.pop(name, None)
    return node


def _unchanged(program: Program, functions: Sequence[tuple[Source, Function]]) -> Callable[[], Callable[[], None]]:
    def apply() -> Callable[[], None]:
        undo = [program.swap(source, function, function.node) for source, function in functions]

        def back() -> None:
            for one in undo:
                one()

        return back

    return apply


def _swap(program: Program, source: Source, function: Function, node: Any) -> Callable[[], Callable[[], None]]:
    return lambda: program.swap(source, function, node)
