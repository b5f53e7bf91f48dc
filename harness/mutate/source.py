"""The source of one target module and its functions."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from harness.errors import UsageError
from harness.mutate import guard

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_FUTURE = 0x100000  # CO_FUTURE_ANNOTATIONS


class TargetError(UsageError):
    """A target that cannot be mutated; the text is one clear line for the user."""


@dataclass
class Function:
    """One outermost function of a module: at module level or in a class body, never inside another function.

    `line` is what its code object calls `co_firstlineno`: the first decorator's line, or that of `def`.
    """

    module: str
    qualname: str
    node: FunctionNode
    classes: tuple[str, ...]

    @property
    def line(self) -> int:
        """First line, decorators included (1-based)."""
        return min([self.node.lineno, *(d.lineno for d in self.node.decorator_list)])

    @property
    def end_line(self) -> int:
        """Last line (1-based, inclusive)."""
        return self.node.end_lineno or self.node.lineno


@dataclass
class Source:
    """A target module: its text, its tree and its outermost functions in the order of the file."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    functions: list[Function] = field(default_factory=list)

    def function(self, qualname: str) -> Function:
        """The function of that qualified name (of several, the last, which is the one that lives)."""
        found = [f for f in self.functions if f.qualname == qualname]
        if not found:
            raise TargetError(f"{self.name} has no function {qualname}")
        return found[-1]

    def segment(self, node: ast.AST) -> str:
        """The source text of a node, its lines joined; "" where the node has no position."""
        return ast.get_source_segment(self.text, node) or ""

    @property
    def flags(self) -> int:
        """Compiler flags of this module (only `annotations` changes anything today)."""
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module, node.names[0].name) == ("__future__", "annotations"):
                return _FUTURE
        return 0


def read(name: str) -> Source:
    """Import `name` and read its source; TargetError when either cannot be done."""
    path = getattr(_imported(name), "__file__", None)
    if not path or not path.endswith(".py"):
        raise TargetError(f"target {name} has no Python source")
    return parse(name, Path(path))


def _imported(name: str) -> ModuleType:
    try:
        with guard.staged(f"target {name}: its import", guard.IMPORT_S):
            return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit, too
        raise TargetError(f"target {name} does not import: {type(error).__name__}: {_first_line(error)}") from error


def parse(name: str, path: Path) -> Source:
    """Read and index a source file without importing it."""
    try:
        with tokenize.open(path) as file:  # in the encoding that the file names
            text = file.read()
        tree = ast.parse(text, str(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise TargetError(f"target {name} cannot be read: {type(error).__name__}: {_first_line(error)}") from error
    source = Source(name, path, text, tree)
    source.functions = list(_outermost(name, tree, ()))
    return source


def submodules(name: str) -> list[str]:
    """`name`, or, when it is a package, all modules below it that hold code; TargetError when it does not import."""
    import pkgutil

    module = _imported(name)
    if not hasattr(module, "__path__"):
        return [name]
    below = [m.name for m in pkgutil.walk_packages(module.__path__, name + ".") if not m.ispkg]
    return sorted(below) or [name]


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def _outermost(module: str, node: ast.AST, classes: tuple[str, ...]) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FunctionNode):
            yield Function(module, ".".join((*classes, child.name)), child, classes)
        elif isinstance(child, ast.ClassDef):
            yield from _outermost(module, child, (*classes, child.name))
        elif isinstance(child, ast.stmt):
            yield from _outermost(module, child, classes)


def loaded(name: str) -> ModuleType | None:
    """The module if it has been imported."""
    return sys.modules.get(name)
