"""The generic operators: what goes wrong in code that drives engines, written as changes of a syntax tree.

`sites(source)` yields every mutant of a module in the order of the file. Statement operators are here,
those on expressions in `expressions.py`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from harness.mutate import expressions
from harness.mutate.sites import Block, Change, Edit, Site, blocks, placed, text
from harness.mutate.source import Function, Source

RELEASES = frozenset({"release", "unlock", "__exit__", "__aexit__", "notify", "notify_all", "task_done"})
EFFECTS = frozenset({"append", "extend", "appendleft", "add", "put", "put_nowait", "emit", "send", "write", "submit"})
_EXIT = (ast.Raise, ast.Return, ast.Continue, ast.Break)


def _call(node: ast.AST) -> ast.Call | None:
    """The call of a statement that is only a call, awaited or not."""
    if not isinstance(node, ast.Expr):
        return None
    value = node.value.value if isinstance(node.value, ast.Await) else node.value
    return value if isinstance(value, ast.Call) else None


def _name(call: ast.Call | None) -> str:
    if call is None:
        return ""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def drop_call(block: Block) -> Iterator[Change]:
    """A call whose result nobody uses is not made."""
    for i, node in enumerate(block.body):
        if (call := _call(node)) is not None and _name(call) not in RELEASES:
            yield block.replace(i, i + 1, [], "drop-call")


def drop_release(block: Block) -> Iterator[Change]:
    """A lock stays held: a release is not made, a `with` enters and never exits."""
    for i, node in enumerate(block.body):
        if _name(_call(node)) in RELEASES:
            yield block.replace(i, i + 1, [], "drop-release")
        if isinstance(node, (ast.With, ast.AsyncWith)) and len(node.items) == 1:
            item, name = node.items[0], "__aenter__" if isinstance(node, ast.AsyncWith) else "__enter__"
            enter: Any = ast.Call(ast.Attribute(item.context_expr, name, ast.Load()), [], [])
            enter = ast.Await(enter) if isinstance(node, ast.AsyncWith) else enter
            first = ast.Assign([item.optional_vars], enter) if item.optional_vars else ast.Expr(enter)
            yield block.replace(i, i + 1, [first, *node.body], "drop-release")


def drop_await(block: Block) -> Iterator[Change]:
    """A coroutine is made and never awaited."""
    for node in block.body:
        if isinstance(node, (ast.Expr, ast.Assign, ast.Return, ast.AnnAssign)) and isinstance(node.value, ast.Await):
            inner = node.value.value
            yield Change(
                "drop-await", (Edit(node, "value", inner),), node.value, node.value, text(node.value), text(inner)
            )


def lift_finally(block: Block) -> Iterator[Change]:
    """A statement of a `finally` runs only when nothing was raised: it stands after the try."""
    for i, node in enumerate(block.body):
        if isinstance(node, ast.Try) and node.finalbody:
            for j, stmt in enumerate(node.finalbody):
                rest = node.finalbody[:j] + node.finalbody[j + 1 :]
                if not rest and not node.handlers:
                    rest = [placed(ast.Pass(), stmt)]
                body = block.body
                edits = (
                    Edit(node, "finalbody", rest),
                    Edit(block.holder, block.name, [*body[: i + 1], stmt, *body[i + 1 :]]),
                )
                yield Change("lift-finally", edits, stmt, stmt, text(stmt), f"# after the try:\n{text(stmt)}")


def past_try(block: Block) -> Iterator[Change]:
    """The first statement of a try stands before it, unguarded; the last one stands after it."""
    for i, node in enumerate(block.body):
        if not isinstance(node, ast.Try):
            continue
        body = block.body
        for stmt, where in ((node.body[0], 0), (node.body[-1], 1)):
            if isinstance(stmt, _EXIT) or (where and len(node.body) == 1):
                continue
            rest = [s for s in node.body if s is not stmt] or [placed(ast.Pass(), stmt)]
            edits = (
                Edit(node, "body", rest),
                Edit(block.holder, block.name, [*body[: i + where], stmt, *body[i + where :]]),
            )
            side = "after" if where else "before"
            yield Change("past-try", edits, stmt, stmt, text(stmt), f"# {side} the try:\n{text(stmt)}")


def swap_calls(block: Block) -> Iterator[Change]:
    """Two calls that follow each other change places."""
    body = block.body
    for i in range(len(body) - 1):
        one, two = _call(body[i]), _call(body[i + 1])
        if one is None or two is None or ast.dump(body[i]) == ast.dump(body[i + 1]):
            continue
        op = "reorder-effects" if _name(one) in EFFECTS and _name(two) in EFFECTS else "swap-calls"
        yield block.replace(i, i + 2, [body[i + 1], body[i]], op)


def drop_guard(block: Block) -> Iterator[Change]:
    """A refusal is not made; what was done under a condition is always done; an assertion is gone."""
    for i, node in enumerate(block.body):
        if isinstance(node, ast.Assert):
            yield block.replace(i, i + 1, [], "drop-guard")
        if isinstance(node, ast.If):
            leaves = isinstance(node.body[-1], _EXIT)
            yield block.replace(i, i + 1, list(node.orelse) if leaves else list(node.body), "drop-guard")


def swallow(block: Block) -> Iterator[Change]:
    """An exception does not reach the caller: it is not raised, or a try keeps it."""
    for i, node in enumerate(block.body):
        if isinstance(node, ast.Raise):
            yield block.replace(i, i + 1, [], "swallow")
        if isinstance(node, ast.Try) and not any(_broad(h) for h in node.handlers):
            handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])
            handlers = [*node.handlers, placed(handler, node)]
            yield Change(
                "swallow",
                (Edit(node, "handlers", handlers),),
                node,
                node.body[0],
                f"try:\n    {text(node.body[0])}",
                "# with except Exception: pass",
            )


def _broad(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or getattr(handler.type, "id", "") in ("Exception", "BaseException")


def retry(block: Block) -> Iterator[Change]:
    """A call is made twice: one whose result nobody uses, or one that is awaited."""
    for i, node in enumerate(block.body):
        awaited = isinstance(node, ast.Assign) and isinstance(node.value, ast.Await)
        if awaited or (_call(node) is not None and _name(_call(node)) not in RELEASES):
            yield block.replace(i, i + 1, [node, node], "retry")


def reorder_effects(block: Block) -> Iterator[Change]:
    """Effects come out in another order: a returned list is reversed, two yields change places."""
    body = block.body
    for i, node in enumerate(body):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.List) and len(node.value.elts) > 1:
            old = node.value
            new = placed(ast.List(list(reversed(old.elts)), ast.Load()), old)
            yield Change("reorder-effects", (Edit(node, "value", new),), old, old, text(old), text(new))
        pair = body[i : i + 2]
        if len(pair) == 2 and all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Yield) for s in pair):
            yield block.replace(i, i + 2, [pair[1], pair[0]], "reorder-effects")


def skip_rank(block: Block) -> Iterator[Change]:
    """A loop leaves out its first turn: one rank, one engine, one bucket is forgotten."""
    for node in block.body:
        if isinstance(node, ast.For):
            yield expressions.skip_first(node)


STATEMENTS: tuple[Callable[[Block], Iterator[Change]], ...] = (
    drop_call,
    drop_release,
    drop_await,
    lift_finally,
    past_try,
    swap_calls,
    drop_guard,
    swallow,
    retry,
    reorder_effects,
    skip_rank,
)
NAMES: tuple[str, ...] = (*(f.__name__.replace("_", "-") for f in STATEMENTS), *expressions.NAMES)


def changes(function: Function) -> Iterator[tuple[Change, str, ast.stmt | None]]:
    """Every change of one function, with the name of what it is in below the function's own, and its statement."""
    for block, inside in blocks(function.node):
        for operator in STATEMENTS:
            for change in operator(block):
                yield change, inside, None
        for i, stmt in enumerate(block.body):
            if i == 0 and _is_docstring(block.holder, stmt):
                continue
            for change in expressions.changes(stmt):
                yield change, inside, stmt


def _is_docstring(holder: Any, stmt: ast.stmt) -> bool:
    return (
        isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Constant)
    )


def sites(source: Source, only: frozenset[str] = frozenset()) -> Iterator[Site]:
    """Every generic mutant of a module; `only` names operators to keep (all when empty)."""
    for function in source.functions:
        seen: Counter[tuple[str, str, int, int]] = Counter()
        found: list[Site] = []
        for change, inside, stmt in changes(function):
            if only and change.op not in only:
                continue
            first: Any = change.first
            qualname = function.qualname + inside
            key = (change.op, qualname, first.lineno, first.col_offset)
            found.append(Site(change, source, function, qualname, seen[key], stmt))
            seen[key] += 1
        yield from sorted(found, key=lambda s: (s.line, s.column))
