"""How a changed function gets into the running program; nothing on disk is touched.

A function is compiled alone, inside a skeleton of its classes (so that `__class__`, private names and line numbers come
out right), and its code is swapped into every live function object that was made from it. So is that of the functions
inside it which are alive: what a factory or a decorator made at import does not come from the changed one.
"""

from __future__ import annotations

import ast
import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from harness.mutate.source import Function, FunctionNode, Source
from harness.mutate.trees import Copying, changed

LAMBDA = "<lambda>"
_Key = tuple[str, int]
"""What a code object is called, and its first line."""
Swapped = list[tuple[FunctionType, CodeType]]
"""Function objects, and the code that each had before."""


def compile_function(source: Source, function: Function, node: FunctionNode, free: tuple[str, ...] = ()) -> CodeType:
    """The code object of `node`, in place of `function`. `free` are free variables that must stay, used or not."""
    made: ast.stmt = changed(node, decorator_list=[], returns=None, body=[*node.body, *_keeping(free, node)])
    for name in reversed(function.classes):
        made = ast.ClassDef(name=name, bases=[], keywords=[], body=[made], decorator_list=[])
        made.type_params = []  # type: ignore[attr-defined]  # asked for from 3.12 on
        ast.copy_location(made, node)
    module = ast.Module(body=[made], type_ignores=[])
    try:
        code: CodeType = compile(module, str(source.path), "exec", flags=source.flags, dont_inherit=True)
    except (TypeError, ValueError):  # a node of an edit has no place; looking for them each time costs more than that
        ast.fix_missing_locations(module)
        code = compile(module, str(source.path), "exec", flags=source.flags, dont_inherit=True)
    for name in (*function.classes, node.name):
        code = next(c for c in _codes(code) if c.co_name == name)
    return code


def _keeping(free: tuple[str, ...], near: ast.AST) -> list[ast.stmt]:
    """Statements that use these variables and never run."""
    kept = [ast.If(ast.Constant(False), [ast.Expr(ast.Name(name, ast.Load()))], []) for name in free]
    for stmt in kept:
        for part in ast.walk(stmt):
            ast.copy_location(part, near)
    return list(kept)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            if const.co_name.startswith("<generic parameters"):
                yield from _codes(const)


def _below(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from _below(const)


def _key(code: CodeType) -> _Key:
    return code.co_name, code.co_firstlineno


def _nested(node: FunctionNode) -> list[tuple[_Key, Any]]:
    """The functions inside a function; of lambdas those that are alone in their line."""
    found: list[tuple[_Key, Any]] = []
    for part in ast.walk(node):
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part is not node:
            first = min([part.lineno, *(d.lineno for d in part.decorator_list)])
            found += [((part.name, line), part) for line in {first, part.lineno}]
        elif isinstance(part, ast.Lambda):
            found.append(((LAMBDA, part.lineno), part))
    times = Counter(key for key, _ in found)
    return [(key, part) for key, part in found if times[key] == 1]


class Live:
    """Every live function object of the target modules, found once by its code's file, name and line."""

    def __init__(self, sources: list[Source]) -> None:
        files = {str(s.path): s.name for s in sources}
        self._found: dict[tuple[str, str, int], list[FunctionType]] = {}
        self._inside: dict[int, dict[_Key, list[FunctionType]]] = {}
        for thing in gc.get_objects():
            if type(thing) is FunctionType:
                module = files.get(thing.__code__.co_filename)
                if module is not None:
                    self._found.setdefault((module, *_key(thing.__code__)), []).append(thing)

    def objects(self, function: Function) -> list[FunctionType]:
        """The live function objects made from `function`; empty when it was defined and thrown away."""
        name = function.node.name
        lines = (function.line, function.node.lineno)  # as Python compiled it, and as `compile_function` does
        return next((f for line in lines if (f := self._found.get((function.module, name, line)))), [])

    def inside(self, function: Function) -> dict[_Key, list[FunctionType]]:
        """The live function objects that were made while `function` ran, by what their code is called."""
        known = self._inside.get(id(function))
        if known is None:
            # Whether a node lies in the changed tree or in this one, its name and line are the same.
            found = {key: self._found.get((function.module, *key)) for key, _ in _nested(function.node)}
            known = self._inside[id(function)] = {key: things for key, things in found.items() if things}
        return known

    def install(self, source: Source, function: Function, node: FunctionNode) -> Swapped:
        """Swap the code of `node` into every live object, and say what each had before; empty when there is none."""
        objects, inside = self.objects(function), self.inside(function)
        compiled: dict[tuple[str, ...], CodeType] = {}
        before = [(thing, thing.__code__) for thing in objects]
        for thing in objects:
            free = thing.__code__.co_freevars
            if free not in compiled:
                code = compile_function(source, function, node, free)
                compiled[free] = code.replace(co_qualname=thing.__code__.co_qualname)
            thing.__code__ = compiled[free]
        if inside:
            whole = next(iter(compiled.values()), None) or compile_function(source, function, node)
            before += _swap_inside(source, function, node, whole, inside)
        return before


def _swap_inside(
    source: Source, function: Function, node: FunctionNode, code: CodeType, inside: Mapping[_Key, list[FunctionType]]
) -> Swapped:
    """Swap what lies inside the changed function `code` into the live objects `inside`, and say what each had."""
    new = {_key(below): below for below in _below(code)}
    wanted = {key: things[0].__code__.co_freevars for key, things in inside.items() if key in new}
    if any(new[key].co_freevars != free for key, free in wanted.items()):
        kept = _Keeping(wanted).visit(node)
        new = {_key(below): below for below in _below(compile_function(source, function, kept))}
    before: Swapped = []
    for key in wanted:
        for thing in inside[key]:
            old = thing.__code__
            # Where what it closes over is not there any more, the change is outside: this one was made before it.
            if new[key].co_freevars == old.co_freevars:
                before.append((thing, old))
                thing.__code__ = new[key].replace(co_qualname=old.co_qualname)
    return before


class _Keeping(Copying):
    """Functions inside a function use their free variables, whatever an edit has dropped."""

    def __init__(self, free: Mapping[_Key, tuple[str, ...]]) -> None:
        self._free = free

    def _function(self, node: Any) -> Any:
        made: Any = self.generic_visit(node)
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        free = self._free.get((node.name, first)) or self._free.get((node.name, node.lineno), ())
        return changed(made, body=[*made.body, *_keeping(free, node)]) if free else made

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815 - names of ast

    def visit_Lambda(self, node: ast.Lambda) -> Any:  # noqa: N802 - a name of ast
        """The same in an expression."""
        made: Any = self.generic_visit(node)
        names: list[ast.expr] = [ast.Name(name, ast.Load()) for name in self._free.get((LAMBDA, node.lineno), ())]
        if not names:
            return made
        body = ast.IfExp(ast.Constant(True), made.body, ast.Tuple(names, ast.Load()))
        for part in ast.walk(body):
            if not hasattr(part, "lineno"):
                ast.copy_location(part, node)
        return changed(made, body=body)
