"""A place in a function where one generic operator applies, with a stable id and an exact position."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.mutate.jobs import Undo
from harness.mutate.mutant import Mutant, Place
from harness.mutate.source import Function, FunctionNode, Source


@dataclass(frozen=True)
class Edit:
    """Put `new` into `holder.name`: a node, a constant or a whole list."""

    holder: ast.AST
    name: str
    new: Any


@dataclass(frozen=True)
class Change:
    """What an operator proposes: the edits, the nodes they touch (for the position) and both texts."""

    op: str
    edits: tuple[Edit, ...]
    first: ast.AST
    last: ast.AST
    original: str
    replacement: str


@dataclass(frozen=True)
class Site:
    """One generic mutant. `n` tells apart what one operator does several times at one place."""

    change: Change
    source: Source
    function: Function
    qualname: str
    n: int
    stmt: Any = None
    """The statement whose expression it changes; None where it changes whole statements."""

    kind = "generic"

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.change.op

    @property
    def line(self) -> int:
        """First line, from 1."""
        return int(self.change.first.lineno)  # type: ignore[attr-defined]  # parsed

    @property
    def column(self) -> int:
        """First column in characters, from 1."""
        return _column(self.source, self.line, self.change.first.col_offset)  # type: ignore[attr-defined]  # parsed

    @property
    def place(self) -> Place:
        """The exact place in the file."""
        last: Any = self.change.last
        end = _column(self.source, last.end_lineno, last.end_col_offset)
        return Place(str(self.source.path), self.line, self.column, last.end_lineno, end)

    @property
    def id(self) -> str:
        """`module:qualname:op:line:col:n`."""
        return f"{self.source.name}:{self.qualname}:{self.op}:{self.line}:{self.column}:{self.n}"

    @property
    def lines(self) -> range:
        """The lines that tell whether a test runs through here: of an expression, those of its whole statement."""
        if self.stmt is not None:
            end = self.stmt.body[0].lineno if getattr(self.stmt, "body", None) else self.stmt.end_lineno + 1
            return range(self.stmt.lineno, max(end, self.stmt.lineno + 1))
        return range(self.line, int(self.change.last.end_lineno or self.line) + 1)  # type: ignore[attr-defined]  # parsed

    def apply(self, target: str, live: Any) -> Undo:
        """Swap the mutated code into the program `live`; what is returned swaps it out again."""
        undo = self.edit()
        try:
            swapped: Undo = live.swap(self.source, self.function, self.function.node)
        finally:
            for e in reversed(undo):
                setattr(e.holder, e.name, e.new)
        return swapped

    def edit(self) -> list[Edit]:
        """Edit the tree; what it returns undoes that when applied in reverse."""
        undo = []
        for e in self.change.edits:
            undo.append(Edit(e.holder, e.name, getattr(e.holder, e.name)))
            setattr(e.holder, e.name, e.new)
        return undo

    def mutated(self) -> str:
        """The whole function after the change, as text."""
        undo = self.edit()
        try:
            return ast.unparse(self.function.node)
        finally:
            for e in reversed(undo):
                setattr(e.holder, e.name, e.new)

    def describe(self) -> str:
        """The operator and what it makes of the original."""
        return f"{self.op}: {_short(self.change.original)} -> {_short(self.change.replacement)}"

    def mutant(self) -> Mutant:
        """As a mutant that no rule declares."""
        return Mutant(self.id, f"{self.source.name}:{self.function.qualname}", self)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."


def _column(source: Source, line: int, offset: int) -> int:
    if source.text.isascii():
        return offset + 1
    return len(source.text.split("\n")[line - 1].encode()[:offset].decode("utf-8", "replace")) + 1


def placed(node: Any, near: ast.AST) -> Any:
    """`node` with every part that has no position placed at `near`."""
    for part in ast.walk(node):
        if isinstance(part, (ast.expr, ast.stmt, ast.excepthandler, ast.keyword, ast.arg)) and not hasattr(
            part, "lineno"
        ):
            ast.copy_location(part, near)
    return node


def text(nodes: Any) -> str:
    """Nodes as source text."""
    if isinstance(nodes, list):
        return "\n".join(ast.unparse(n) for n in nodes)
    return ast.unparse(nodes)


@dataclass(frozen=True)
class Block:
    """A list of statements, and the nodes around it (innermost last)."""

    holder: Any
    name: str
    around: tuple[ast.AST, ...]

    @property
    def body(self) -> list[Any]:
        """The statements."""
        return list(getattr(self.holder, self.name))

    def replace(self, at: int, to: int, new: list[Any], op: str) -> Change:
        """Statements `at` to `to` (exclusive) become `new` (nothing becomes `pass`)."""
        body = self.body
        old = body[at:to]
        for node in new:
            placed(node, old[0])
        kept = [*body[:at], *new, *body[to:]] or [placed(ast.Pass(), old[0])]
        return Change(op, (Edit(self.holder, self.name, kept),), old[0], old[-1], text(old), text(new) or "pass")


def blocks(function: FunctionNode) -> Iterator[tuple[Block, str]]:
    """Every statement list in the function, with the qualified name (below the function's own) of what holds it."""
    yield from _blocks(function, (), "")


def _blocks(node: ast.AST, around: tuple[ast.AST, ...], inside: str) -> Iterator[tuple[Block, str]]:
    for name, value in ast.iter_fields(node):
        if not isinstance(value, list) or not value:
            continue
        if isinstance(value[0], ast.stmt):
            yield Block(node, name, (*around, node)), inside
        for child in value:
            if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                below = inside
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    between = ".<locals>." if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else "."
                    below = f"{inside}{between}{child.name}"
                yield from _blocks(child, (*around, node), below)
