"""Which statements run: every statement of the targets is preceded by a mark, an item of one array of bytes.

Setting an item costs a few nanoseconds and only the targets pay for it, so that a run with marks takes hardly longer
than one without; a tracer, which is told of every line of every module, makes it four times as long. The body of a
lambda and the elements of a generator have marks of their own: they may run in another check than what made them.
"""

from __future__ import annotations

import ast
import builtins
import itertools
from typing import Any

from harness.mutate.budget import instrument
from harness.mutate.jobs import Undo
from harness.mutate.program import Program
from harness.mutate.sites import placed
from harness.mutate.trees import Copying, changed

RAN, SET = "__refitcheck_ran__", "__refitcheck_set_ran__"


class Marks:
    """Marks in all live functions of the targets; `remove` takes them out."""

    def __init__(self, program: Program) -> None:
        self._places: list[tuple[str, int]] = []
        self._undo: list[Undo] = []
        for source in program.sources.values():
            for function in source.functions:
                marked = _Marking(str(source.path), self._places).visit(function.node)
                self._undo += program.probe(source, function, instrument(marked))
        self._ran = bytearray(len(self._places))
        self._none = bytes(self._ran)
        setattr(builtins, RAN, self._ran)
        setattr(builtins, SET, self._ran.__setitem__)

    def take(self) -> dict[str, frozenset[int]]:
        """The first lines of the statements that were begun since this was asked for last, by file."""
        found: dict[str, set[int]] = {}
        for path, line in itertools.compress(self._places, self._ran):
            found.setdefault(path, set()).add(line)
        self._ran[:] = self._none
        return {path: frozenset(lines) for path, lines in found.items()}

    def remove(self) -> None:
        """The functions are as they were."""
        while self._undo:
            self._undo.pop()()


class _Marking(Copying):
    """Copies a function with a mark before each statement; `places` gets the file and line of each."""

    def __init__(self, path: str, places: list[tuple[str, int]]) -> None:
        self._path, self._places = path, places
        self._line = 0

    def visit(self, node: ast.AST) -> Any:
        """A copy; what lies in a statement belongs to the line at which that begins."""
        outer = self._line
        if isinstance(node, ast.stmt):
            self._line = node.lineno
        made: Any = super().visit(node)
        self._line = outer
        return made

    def generic_visit(self, node: ast.AST) -> Any:
        """A copy with a mark before each statement of a block (after it, where it is a text that documents)."""
        made: Any = super().generic_visit(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                body: list[Any] = []
                for before, stmt in zip(value, getattr(made, name), strict=True):
                    text = not body and isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
                    body += [stmt, self._statement(before)] if text else [self._statement(before), stmt]
                made = changed(made, **{name: body})
        return made

    def visit_Lambda(self, node: ast.Lambda) -> Any:  # noqa: N802 - a name of ast
        """Whether it was called, not whether it was made."""
        made: Any = self.generic_visit(node)
        return changed(made, body=self._expression(node.body, made.body))

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:  # noqa: N802 - a name of ast
        """Whether it gave something, not whether it was made."""
        made: Any = self.generic_visit(node)
        return changed(made, elt=self._expression(node.elt, made.elt))

    def _number(self, line: int) -> ast.Constant:
        self._places.append((self._path, line))
        return ast.Constant(len(self._places) - 1)

    def _statement(self, near: ast.stmt) -> ast.stmt:
        item = ast.Subscript(ast.Name(RAN, ast.Load()), self._number(near.lineno), ast.Store())
        mark: ast.stmt = placed(ast.Assign([item], ast.Constant(1)), near)
        return mark

    def _expression(self, near: ast.expr, made: ast.expr) -> ast.expr:
        call = ast.Call(ast.Name(SET, ast.Load()), [self._number(self._line), ast.Constant(1)], [])
        both: ast.expr = placed(ast.BoolOp(ast.Or(), [call, made]), near)  # the call gives None
        return both
