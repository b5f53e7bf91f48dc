"""Where a catalogue mutant stands in the source, and its texts, so that a report can show it."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from harness.mutate.edits import At, Edits, Patch, ReplaceExpr, Table
from harness.mutate.mutant import Mutant, PatternGoneError, Place
from harness.mutate.pattern import find_expression, find_statement
from harness.mutate.program import Program
from harness.mutate.source import Source, TargetError


def locate(mutant: Mutant, program: Program) -> tuple[Place | None, str, str]:
    """The place, the original text and the replacement; None and "" where there is none to show."""
    op: Any = mutant.op
    try:
        if isinstance(op, Edits):
            return _edits(mutant, op, program)
        if isinstance(op, Table):
            source = program.source(mutant.module)
            node = _assignment(source, mutant.qualname.partition(".")[0])
            return _place(source, node) if node else None, "", op.describe()
        if isinstance(op, Patch):
            return _patch(op), "", op.describe()
    except (PatternGoneError, TargetError, OSError):
        return None, "", op.describe()
    return None, "", op.describe()


def _edits(mutant: Mutant, op: Edits, program: Program) -> tuple[Place | None, str, str]:
    first: Any = op.edits[0]
    module, _, qualname = (first.target if isinstance(first, At) else mutant.target).partition(":")
    first = first.inner if isinstance(first, At) else first
    source = program.source(module)
    function = source.function(qualname)
    node: Any = function.node
    pattern = getattr(first, "pattern", "") or getattr(first, "before", "") or getattr(first, "after", "")
    if isinstance(first, ReplaceExpr):
        holder, name, at = find_expression(function.node, first.pattern, first.nth)
        node = getattr(holder, name) if at is None else getattr(holder, name)[at]
    elif pattern:
        block, index = find_statement(function.node, pattern, getattr(first, "nth", None))
        node = block.body[index]
    return _place(source, node), source.segment(node), op.describe()


def _place(source: Source, node: Any) -> Place:
    return Place(str(source.path), node.lineno, node.col_offset + 1, node.end_lineno, node.end_col_offset + 1)


def _assignment(source: Source, name: str) -> ast.AST | None:
    for node in source.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return node
    return None


def _patch(op: Patch) -> Place | None:
    shown: Any = op.shown or op.enter
    shown = inspect.unwrap(shown)
    path = inspect.getsourcefile(shown)
    lines, first = inspect.getsourcelines(shown)
    if path is None:
        return None
    return Place(path, first, 1, first + len(lines) - 1, len(lines[-1].rstrip("\n")) + 1)
