"""Generic operators on expressions: negation, comparison, constants, arithmetic, bounds, comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from harness.mutate.sites import Change, Edit, placed, text

NAMES = ("negate", "compare", "constant", "arithmetic", "off-by-one")

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Add,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


def _change(op: str, holder: ast.AST, name: str, old: Any, new: Any, at: int | None = None) -> Change:
    placed(new, old)
    value = new
    if at is not None:
        value = list(getattr(holder, name))
        value[at] = new
    return Change(op, (Edit(holder, name, value),), old, old, text(old), text(new))


def _inside(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, Any]]:
    """Every expression of one statement, with where it hangs; not in its blocks, definitions or annotations."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args", "type_params") and not isinstance(
            node, ast.Call
        ):
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for at, child in children:
            if isinstance(child, ast.expr):
                yield node, name, at, child
                yield from _inside(child)
            elif isinstance(child, (ast.keyword, ast.comprehension, ast.withitem)):
                yield from _inside(child)


def changes(stmt: ast.stmt) -> Iterator[Change]:
    """Every change of the expressions of one statement (its own, not those of the blocks below it)."""
    if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return
    if isinstance(stmt, (ast.If, ast.While)):
        yield _negate(stmt, "test", stmt.test)
    if isinstance(stmt, ast.AugAssign) and type(stmt.op) in _ARITHMETIC:
        new = ast.AugAssign(stmt.target, _ARITHMETIC[type(stmt.op)](), stmt.value)
        yield Change("arithmetic", (Edit(stmt, "op", new.op),), stmt, stmt, text(stmt), text(placed(new, stmt)))
    for holder, name, at, node in _inside(stmt):
        yield from _expression(holder, name, at, node)


def _negate(holder: ast.AST, name: str, node: ast.expr, at: int | None = None) -> Change:
    new = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else _not(node)
    return _change("negate", holder, name, node, new, at)


def _not(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def _expression(holder: ast.AST, name: str, at: int | None, node: Any) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for i in range(len(node.ops)):
            ops = [_COMPARE[type(o)]() if j == i else o for j, o in enumerate(node.ops)]
            yield _change("compare", holder, name, node, ast.Compare(node.left, ops, node.comparators), at)
    elif isinstance(node, ast.BoolOp):
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield _change("negate", holder, name, node, ast.BoolOp(other, node.values), at)
        for i in range(len(node.values)):
            rest = node.values[:i] + node.values[i + 1 :]
            less = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            yield _change("drop-guard", holder, name, node, less, at)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        if not (isinstance(holder, (ast.If, ast.While)) and name == "test"):
            yield _negate(holder, name, node, at)
    elif isinstance(node, ast.IfExp):
        yield _negate(node, "test", node.test)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
        new = ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        yield _change("arithmetic", holder, name, node, new, at)
    elif isinstance(node, ast.Constant) and not isinstance(holder, (ast.JoinedStr, ast.FormattedValue)):
        for value in _constants(node.value):
            yield _change("constant", holder, name, node, ast.Constant(value), at)
    elif isinstance(node, ast.Slice):
        yield from _slice(node)
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range":
        for i in range(min(2, len(node.args))):
            args = [
                _plus(a, 1 if i == 0 and len(node.args) > 1 else -1) if i == j else a for j, a in enumerate(node.args)
            ]
            yield _change("off-by-one", holder, name, node, ast.Call(node.func, args, node.keywords), at)
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        for generator in node.generators:
            if not generator.is_async:
                yield skip_first(generator)
            for i, test in enumerate(generator.ifs):
                yield _negate(generator, "ifs", test, i)


def _is_text(node: ast.BinOp) -> bool:
    """`"..." % x` and string sums: arithmetic on them only crashes."""
    return any(isinstance(x, ast.JoinedStr) or _is_str(x) for x in (node.left, node.right))


def _is_str(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))


def _constants(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield value + 1
    elif isinstance(value, str):
        yield value + "~" if value else "~"
    elif isinstance(value, bytes):
        yield value + b"~"


def _plus(node: ast.expr, n: int) -> ast.expr:
    op: ast.operator = ast.Add() if n > 0 else ast.Sub()
    return ast.BinOp(node, op, ast.Constant(abs(n)))


def _slice(node: ast.Slice) -> Iterator[Change]:
    """A bucket one too long or one too short."""
    if node.lower is not None:
        yield _change("off-by-one", node, "lower", node.lower, _plus(node.lower, 1))
    if node.upper is not None:
        yield _change("off-by-one", node, "upper", node.upper, _plus(node.upper, -1))


def skip_first(loop: Any) -> Change:
    """The loop over `loop.iter` without its first turn."""
    islice = ast.Attribute(
        ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("itertools")], []), "islice", ast.Load()
    )
    new = placed(ast.Call(islice, [loop.iter, ast.Constant(1), ast.Constant(None)], []), loop.iter)
    old = text(loop.iter)
    return Change("skip-rank", (Edit(loop, "iter", new),), loop.iter, loop.iter, old, f"islice({old}, 1, None)")
