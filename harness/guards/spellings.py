"""Every import of one module's source, in every spelling, with when it is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from harness.errors import UsageError
from harness.guards.sources import Source
from harness.words import told

When = Literal["import", "call", "types"]
"""On import of the module; when something of it is called; never, for type checkers alone."""

_MISSING = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Import:
    """What an import asks for. `names` are the modules that it may execute: a.b.c asks for a, a.b and a.b.c,
    `from a.b import c` for a.b.c too where c is a module. `optional`: what is missing is caught, and the code goes on.
    """

    names: tuple[str, ...]
    line: int
    text: str
    when: When
    optional: bool


def imports_of(source: Source) -> list[Import]:
    """All imports of a module in the order of its lines. UsageError for what is no Python."""
    text = source.text()
    try:
        tree = ast.parse(text, str(source.path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{source.path}: no Python that this interpreter reads: {told(error)}") from None
    try:
        return list(_Walk(source, text.splitlines(), tree).all())
    except RecursionError:
        raise UsageError(f"{source.path}: nested too deeply") from None


class _Walk:
    def __init__(self, source: Source, lines: list[str], tree: ast.Module) -> None:
        self._source, self._lines, self._tree = source, lines, tree
        # Functions that import what they are told, under the names by which this module knows them.
        self._loaders = {"__import__"}
        self._importlibs: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name == "importlib" or (alias.name.startswith("importlib.") and not alias.asname):
                        self._importlibs.add(alias.asname or "importlib")
                    elif alias.name == "builtins":
                        self._importlibs.add(alias.asname or "builtins")
            elif isinstance(node, ast.ImportFrom) and node.module in ("importlib", "builtins"):
                self._loaders |= {a.asname or a.name for a in node.names if a.name in ("import_module", "__import__")}

    def all(self) -> Iterator[Import]:
        return self._body(self._tree, "import", False)

    def _body(self, node: ast.AST, when: When, optional: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            yield from self._one(child, when, optional)

    def _one(self, node: ast.AST, when: When, optional: bool) -> Iterator[Import]:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from self._statement(node, when, optional)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for outside in (*node.decorator_list, node.args, *([node.returns] if node.returns else [])):
                yield from self._one(outside, when, optional)
            for inside in node.body:
                yield from self._one(inside, _later(when), optional)
        elif isinstance(node, ast.Lambda):
            yield from self._one(node.body, _later(when), optional)
        elif isinstance(node, ast.If) and _for_types(node.test):
            for inside in node.body:
                yield from self._one(inside, "types", optional)
            for inside in node.orelse:
                yield from self._one(inside, when, optional)
        elif isinstance(node, (ast.Try, ast.TryStar)):
            caught = optional or any(map(_forgives, node.handlers))
            for inside in node.body:
                yield from self._one(inside, when, caught)
            for outside in (*node.handlers, *node.orelse, *node.finalbody):
                yield from self._one(outside, when, optional)
        elif isinstance(node, ast.With) and any(map(_suppresses, node.items)):
            yield from self._body(node, when, True)
        else:
            if isinstance(node, ast.Call):
                yield from self._call(node, when, optional)
            yield from self._body(node, when, optional)

    def _statement(self, node: ast.Import | ast.ImportFrom, when: When, optional: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            names = [whole for alias in node.names for whole in _with_parents(alias.name)]
        else:
            base = _absolute(self._source.package, node.level, node.module or "")
            if base is None:
                return  # beyond the top: it cannot be imported at all
            names = _with_parents(base)
            names += [f"{base}.{alias.name}" if base else alias.name for alias in node.names if alias.name != "*"]
        yield self._found(names, node, when, optional)

    def _call(self, node: ast.Call, when: When, optional: bool) -> Iterator[Import]:
        executes = isinstance(node.func, ast.Name) and node.func.id in ("exec", "eval")
        if not executes and not self._is_loader(node.func):
            return
        given = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "name")]
        name = _text(given[0]) if given else None
        if name is None:
            return  # computed: only a run tells (`harness.guards.jobs`)
        if executes:
            with suppress(SyntaxError, ValueError, MemoryError):
                for one in self._body(ast.parse(name), when, optional):
                    yield self._found(list(one.names), node, one.when, one.optional)
            return
        level = len(name) - len(name.lstrip("."))
        base = _absolute(self._source.package, level, name[level:])
        if base is not None:
            yield self._found(_with_parents(base), node, when, optional)

    def _is_loader(self, func: ast.expr) -> bool:
        if isinstance(func, ast.Name):
            return func.id in self._loaders
        if isinstance(func, ast.Attribute) and func.attr in ("import_module", "__import__"):
            return isinstance(func.value, ast.Name) and func.value.id in self._importlibs
        return False

    def _found(self, names: list[str], node: ast.stmt | ast.expr, when: When, optional: bool) -> Import:
        text = self._lines[node.lineno - 1].strip() if node.lineno <= len(self._lines) else ""
        return Import(tuple(name for name in names if name), node.lineno, text, when, optional)


def _text(node: ast.expr) -> str | None:
    """The text that an expression of constants gives; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return left + right if left is not None and right is not None else None
    if isinstance(node, ast.JoinedStr):
        parts = [_text(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values]
        return "".join(part for part in parts if part is not None) if None not in parts else None
    return None


def _later(when: When) -> When:
    return "types" if when == "types" else "call"


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def _absolute(package: str, level: int, name: str) -> str | None:
    """`from ..x import y` as Python resolves it; None beyond the top-level package."""
    if not level:
        return name
    parts = package.split(".") if package else []
    if level > len(parts):
        return None
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, name] if name else base)


def _for_types(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"


def _named(node: ast.expr | None) -> set[str]:
    """The last parts of the names in an `except` clause or a call's arguments."""
    if node is None:
        return {"BaseException"}
    nodes = node.elts if isinstance(node, ast.Tuple) else [node]
    return {n.attr if isinstance(n, ast.Attribute) else n.id for n in nodes if isinstance(n, (ast.Attribute, ast.Name))}


def _forgives(handler: ast.ExceptHandler) -> bool:
    """It catches what a missing module raises and raises nothing itself."""
    return bool(_named(handler.type) & _MISSING) and not any(isinstance(n, ast.Raise) for n in ast.walk(handler))


def _suppresses(item: ast.withitem) -> bool:
    call = item.context_expr
    return (
        isinstance(call, ast.Call)
        and "suppress" in _named(call.func)
        and any(_named(argument) & _MISSING for argument in call.args)
    )
