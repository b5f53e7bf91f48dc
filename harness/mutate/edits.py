"""The operations of catalogue mutants: edits of one function, found by structure, and edits of tables.

Each edit works on a copy of the function's tree and fails loudly when what it edits is not there any more.
`edits(a, b, ...)` makes several of them one mutant.
"""

from __future__ import annotations

import ast
import copy
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from harness.mutate.mutant import PatternGoneError
from harness.mutate.pattern import find_expression, find_statement
from harness.mutate.sites import Block, placed
from harness.mutate.source import FunctionNode


class FunctionEdit(Protocol):
    """One edit of a function's tree, in place."""

    def edit(self, function: FunctionNode) -> None:
        """Change `function`. PatternGoneError when there is nothing to change."""
        ...

    def describe(self) -> str:
        """In a few words."""
        ...


@dataclass(frozen=True)
class At:
    """An edit of another function than the mutant's target, `module:qualname`: two places make one defect."""

    target: str
    inner: FunctionEdit

    def edit(self, function: FunctionNode) -> None:
        """Change `function`, which is the one that `target` names."""
        self.inner.edit(function)

    def describe(self) -> str:
        """In a few words."""
        return f"in {self.target.partition(':')[2]}: {self.inner.describe()}"


@dataclass(frozen=True)
class Edits:
    """An operation on code: edits, one after the other, of the function that the mutant's target (or an `At`) names."""

    edits: tuple[FunctionEdit, ...]
    kind = "edit"

    def by_target(self, target: str) -> dict[str, list[FunctionEdit]]:
        """The edits of each function, the mutant's own target first."""
        out: dict[str, list[FunctionEdit]] = {}
        for one in self.edits:
            out.setdefault(one.target if isinstance(one, At) else target, []).append(one)
        return out

    def mutated(self, function: FunctionNode, target: str = "", of: str = "") -> FunctionNode:
        """A copy of `function` with the edits of it: `of` names it, by default the mutant's own `target`."""
        made = copy.deepcopy(function)
        for one in self.by_target(target).get(of or target, ()):
            one.edit(made)
        ast.fix_missing_locations(made)
        return made

    def apply(self, target: str, live: Any) -> None:
        """Swap the changed functions into the running program."""
        for place in self.by_target(target):
            module, _, qualname = place.partition(":")
            source = live.source(module)
            function = source.function(qualname)
            try:
                node = self.mutated(function.node, target, place)
            except PatternGoneError as gone:
                raise PatternGoneError(f"{place}: {gone}") from gone
            live.swap(source, function, node)

    def describe(self) -> str:
        """All of them."""
        return "; ".join(one.describe() for one in self.edits)


def edits(*found: FunctionEdit) -> Edits:
    """Several edits as one operation."""
    return Edits(found)


def _code(text: str, near: ast.AST) -> list[ast.stmt]:
    body = ast.parse(text).body
    for node in body:
        for part in ast.walk(node):
            if hasattr(part, "lineno"):
                ast.copy_location(part, near)
    return body


def _set(block: Block, body: list[Any]) -> None:
    setattr(block.holder, block.name, body or [placed(ast.Pass(), block.holder)])


def _cut(block: Block, at: int) -> Any:
    body = block.body
    _set(block, [*body[:at], *body[at + 1 :]])
    return body[at]


@dataclass(frozen=True)
class Drop:
    """A statement is gone."""

    pattern: str
    nth: int | None = None

    def edit(self, function: FunctionNode) -> None:
        """Take it out."""
        _cut(*find_statement(function, self.pattern, self.nth))

    def describe(self) -> str:
        """In a few words."""
        return f"drop {self.pattern}"


@dataclass(frozen=True)
class Replace:
    """A statement becomes other code."""

    pattern: str
    code: str
    nth: int | None = None

    def edit(self, function: FunctionNode) -> None:
        """Put the code in its place."""
        block, at = find_statement(function, self.pattern, self.nth)
        body = block.body
        _set(block, [*body[:at], *_code(self.code, body[at]), *body[at + 1 :]])

    def describe(self) -> str:
        """In a few words."""
        return f"{self.pattern} becomes {self.code}"


@dataclass(frozen=True)
class ReplaceExpr:
    """An expression becomes another."""

    pattern: str
    code: str
    nth: int | None = None

    def edit(self, function: FunctionNode) -> None:
        """Put the new expression in its place."""
        holder, name, at = find_expression(function, self.pattern, self.nth)
        old = getattr(holder, name) if at is None else getattr(holder, name)[at]
        new = ast.parse(self.code, mode="eval").body
        for part in ast.walk(new):
            if hasattr(part, "lineno"):
                ast.copy_location(part, old)
        if at is None:
            setattr(holder, name, new)
        else:
            getattr(holder, name)[at] = new

    def describe(self) -> str:
        """In a few words."""
        return f"{self.pattern} becomes {self.code}"


@dataclass(frozen=True)
class Move:
    """A statement stands before or after another one, in that one's block."""

    pattern: str
    before: str = ""
    after: str = ""
    nth: int | None = None

    def edit(self, function: FunctionNode) -> None:
        """Take it out and put it there."""
        moved = _cut(*find_statement(function, self.pattern, self.nth))
        block, at = find_statement(function, self.before or self.after)
        at += 0 if self.before else 1
        body = block.body
        _set(block, [*body[:at], moved, *body[at:]])

    def describe(self) -> str:
        """In a few words."""
        return f"{self.pattern} moved " + (f"before {self.before}" if self.before else f"after {self.after}")


@dataclass(frozen=True)
class Unwrap:
    """A compound statement (if, with, try, for) is replaced by its body: a guard, a lock or a handler is gone."""

    pattern: str
    nth: int | None = None

    def edit(self, function: FunctionNode) -> None:
        """Put the body in its place."""
        block, at = find_statement(function, self.pattern, self.nth)
        body = block.body
        _set(block, [*body[:at], *body[at].body, *body[at + 1 :]])

    def describe(self) -> str:
        """In a few words."""
        return f"without {self.pattern.splitlines()[0]}"


@dataclass(frozen=True)
class Insert:
    """Code stands before or after a statement; without either, at the beginning of the function."""

    code: str
    before: str = ""
    after: str = ""
    nth: int | None = None

    def edit(self, function: FunctionNode) -> None:
        """Put it there."""
        if not self.before and not self.after:
            at = 1 if ast.get_docstring(function) is not None else 0
            function.body[at:at] = _code(self.code, function.body[0])
            return
        block, at = find_statement(function, self.before or self.after, self.nth)
        body = block.body
        to = at if self.before else at + 1
        _set(block, [*body[:to], *_code(self.code, body[at]), *body[to:]])

    def describe(self) -> str:
        """In a few words."""
        where = f"before {self.before}" if self.before else f"after {self.after}" if self.after else "first"
        return f"{self.code} {where}"


@dataclass(frozen=True)
class Body:
    """The whole function does something else."""

    code: str

    def edit(self, function: FunctionNode) -> None:
        """Replace the body."""
        function.body = _code(self.code, function.body[0])

    def describe(self) -> str:
        """In a few words."""
        return f"does {self.code}"


@dataclass(frozen=True)
class Table:
    """An operation on data: edits a live table (a dict), whose module and name the mutant's target gives.

    `entries` change values of a mapping: `{key: function of the old value}`; with the key `...` all of them.
    """

    entries: Mapping[Any, Callable[[Any], Any]]
    text: str
    kind = "table"

    def apply(self, target: str, live: Any) -> None:
        """Edit the table in place. PatternGoneError when an entry is gone or stays as it was."""
        module, _, name = target.partition(":")
        table = importlib.import_module(module)
        for part in name.split("."):
            table = getattr(table, part, None)  # type: ignore[assignment]
        if not isinstance(table, dict):
            raise PatternGoneError(f"{target} is no table (a dict) any more")
        entries: Mapping[Any, Any] = self.entries
        if ... in entries:
            entries = dict.fromkeys(table, entries[...])
        changed = 0
        for key, change in entries.items():
            if key not in table:
                raise PatternGoneError(f"{target} has no entry {key!r} any more")
            new = change(table[key])
            changed += new != table[key]
            table[key] = new
        if not changed:
            raise PatternGoneError(f"{target}: the edit changes nothing ({self.text})")

    def describe(self) -> str:
        """In a few words."""
        return self.text


@dataclass(frozen=True)
class Patch:
    """An operation given as code: `enter()` changes the program; it may return a system under test to use instead.

    How a `Plant` (a context manager that plants a defect) becomes a mutant. `shown` is the function a report shows.
    """

    enter: Callable[[], Any]
    text: str
    shown: Any = None
    kind = "patch"

    def apply(self, target: str, live: Any) -> None:
        """Enter and never leave: the process ends with the mutant."""
        given = self.enter()
        if callable(given):
            from harness.mutate.rule_checks import planted

            planted.append(given)

    def describe(self) -> str:
        """In a few words."""
        return self.text
