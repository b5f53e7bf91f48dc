"""Which code a catalogue mutant changes, to the line where that can be known: a check that runs none of it is left out.

An edit is compared with the function as it was. A planted defect is entered in a child, where what it replaced is seen.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from harness.mutate.edits import Edits, Patch
from harness.mutate.forked import forked
from harness.mutate.mutant import Mutant, PatternGoneError
from harness.mutate.program import Program
from harness.mutate.source import FunctionNode

SILENCE_S = 20.0
_Held = dict[tuple[str, str], tuple[Mapping[str, Any], dict[str, Any]]]
"""(module, class or "") -> what it holds, and a copy of what it held."""


def places(mutants: Sequence[Mutant], package: str) -> dict[str, tuple[str, ...]]:
    """Mutant id -> `module:qualname` of what it changes in `package`, functions all; none where it changes nothing.

    Mutants of which that is not known are missing. What a planted defect changes has to be imported already.
    """
    found: dict[str, tuple[str, ...]] = {}
    before = _held(package)
    for mutant in mutants:
        op: Any = mutant.op
        if isinstance(op, Edits):
            found[mutant.id] = tuple(op.by_target(mutant.target))
        elif isinstance(op, Patch):
            replaced = forked(partial(_replaced, op.enter, before, package), SILENCE_S)
            if isinstance(replaced, tuple):
                found[mutant.id] = replaced
    return found


def lines(mutant: Mutant, place: str, program: Program) -> tuple[str, set[int]] | None:
    """The file and the lines of a place that a run meets when the mutant can matter; None when that is not known."""
    module, _, qualname = place.partition(":")
    source = program.sources.get(module)
    live = [f for f in source.functions if f.qualname == qualname][-1:] if source is not None else []
    if source is None or not live or any(f is live[0] for f in program.dead):
        return None
    op: Any = mutant.op
    node = live[0].node
    if isinstance(op, Edits):
        try:
            return str(source.path), changed(node, op.mutated(node, mutant.target, place))
        except PatternGoneError:
            return None
    return str(source.path), set(_first(node.body))


def changed(before: FunctionNode, after: FunctionNode) -> set[int]:
    """The lines of `before` one of which runs whenever `after` does anything else."""
    if _head(before) != _head(after) or _yields(before) != _yields(after):
        return set(_first(before.body))
    return set(_blocks(before, after))


def _blocks(before: Any, after: Any) -> Iterator[int]:
    """Where the blocks of two statements whose heads are the same begin to differ."""
    for name in _BLOCKS:
        old, new = getattr(before, name, []), getattr(after, name, [])
        if name == "handlers":
            for one, other in zip(old, new, strict=True):  # the head says their types
                yield from _blocks(one, other)
        else:
            yield from _block(old, new)


def _block(old: list[ast.stmt], new: list[ast.stmt]) -> Iterator[int]:
    told, now = [ast.dump(stmt) for stmt in old], [ast.dump(stmt) for stmt in new]
    first = next((i for i, (a, b) in enumerate(zip(told, now, strict=False)) if a != b), min(len(told), len(now)))
    if first == len(told) == len(now):
        return
    one = len(old) == len(new) and told[first + 1 :] == now[first + 1 :]
    if one and type(old[first]) is type(new[first]) and _head(old[first]) == _head(new[first]):
        yield from _blocks(old[first], new[first])
    elif first < len(old):
        yield old[first].lineno
    elif old:
        yield old[-1].lineno  # what is new comes behind it


_BLOCKS = ("body", "orelse", "finalbody", "handlers")


def _head(node: ast.AST) -> str:
    """A statement without its blocks, as text; of handlers their types and names count."""
    parts = []
    for name, value in ast.iter_fields(node):
        if name == "handlers":
            parts += [_head(handler) for handler in value]
        elif name in _BLOCKS and isinstance(value, list):
            parts.append(f"{name} {bool(value)}")
        elif isinstance(value, list):
            parts.append(f"{name} {[ast.dump(v) if isinstance(v, ast.AST) else v for v in value]}")
        else:
            parts.append(f"{name} {ast.dump(value) if isinstance(value, ast.AST) else value!r}")
    return f"{type(node).__name__}({', '.join(parts)})"


def _yields(function: FunctionNode) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))


def _first(body: Sequence[ast.stmt]) -> Iterator[int]:
    """The line that runs first, the text that documents left out."""
    text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    yield body[0].lineno
    if text and len(body) > 1:
        yield body[1].lineno


def _replaced(enter: Callable[[], Any], before: _Held, package: str) -> tuple[str, ...] | str:
    """What entering replaces, or why that cannot be said. Call it in a process of its own."""
    enter()
    after = _held(package)
    if before.keys() != after.keys():
        return "it imports or makes classes"
    found = set()
    for key, (_, was) in before.items():
        now = after[key][0]
        if was.keys() != now.keys():
            return f"{key} has more or fewer names"
        for name, value in was.items():
            if name in _OWN or value is now[name]:
                continue
            place = _place(value)
            if not place:
                return f"{key}.{name} is no function"
            found.add(place)
    return tuple(sorted(found))


_OWN = ("__builtins__", "__dict__", "__weakref__", "__abstractmethods__", "__annotations__", "__static_attributes__")


def _held(package: str) -> _Held:
    """What the modules of the package and their classes hold; of a table its items, too."""
    held: _Held = {}
    for name, module in sorted(sys.modules.items()):
        if isinstance(module, ModuleType) and (name == package or name.startswith(f"{package}.")):
            _keep(held, name, "", vars(module))
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    _keep(held, name, value.__qualname__, vars(value))
    return held


def _keep(held: _Held, module: str, owner: str, found: Mapping[str, Any]) -> None:
    held[module, owner] = (found, dict(found))
    for name, value in found.items():
        if isinstance(value, dict) and name not in _OWN:
            items = {repr(key): item for key, item in value.items()}
            held[module, f"{owner}.{name}[]"] = (items, items)


def _place(value: Any) -> str:
    """`module:qualname` of a plain function or of what a method's descriptor wraps, "" of anything else."""
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not isinstance(function, FunctionType) or "<locals>" in function.__qualname__:
        return ""
    return f"{function.__module__}:{function.__qualname__}"
