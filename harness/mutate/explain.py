"""`--explain MUTANT`: what it changes, as a diff, and everything its checks say, in full."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from typing import Any

from harness.mutate.edits import Edits
from harness.mutate.mutant import Mutant, Result
from harness.mutate.program import Program
from harness.mutate.report.stryker import reason
from harness.mutate.sites import Site


def diff(mutant: Mutant, program: Program) -> str:
    """The function before and after as a unified diff (without comments); the description where there is no code."""
    op: Any = mutant.op
    if isinstance(op, Site):
        return _diff(ast.unparse(op.function.node), op.mutated(), str(op.source.path))
    if not isinstance(op, Edits):
        return str(op.describe())
    out = []
    for place in op.by_target(mutant.target):
        module, _, qualname = place.partition(":")
        source = program.source(module)
        node = source.function(qualname).node
        out.append(_diff(ast.unparse(node), ast.unparse(op.mutated(node, mutant.target, place)), str(source.path)))
    return "\n".join(out)


def _diff(old: str, new: str, name: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), name, f"{name} (mutant)", n=3, lineterm="")
    return "\n".join(lines)


def lines(mutant: Mutant, result: Result, program: Program) -> Iterator[str]:
    """The whole explanation."""
    yield f"{mutant.id}  {result.verdict}" + (f"  {mutant.origin}" if mutant.origin else "")
    yield f"  target   {mutant.target}"
    if mutant.breaks:
        yield f"  breaks   {', '.join(sorted(mutant.breaks))}"
    if mutant.note:
        yield f"  note     {mutant.note}"
    yield f"  checks   {len(result.checks)} could see it, {result.ran} ran in {result.seconds:.2f} s"
    yield f"  verdict  {reason(result).splitlines()[0]}"
    yield ""
    yield diff(mutant, program)
    if "\n" in result.detail:
        yield ""
        yield result.detail
