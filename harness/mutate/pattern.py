"""Finding code by its structure: a pattern is Python in which `ANY` is any expression and `...` the rest.

`control.pause(...)` is a call with any arguments; `x = ANY` an assignment of anything; `if ANY: ...` an if with any
body; `self.flush(engines, ...)` a call whose first argument is `engines`. Lines and layout do not matter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from harness.mutate.mutant import PatternGoneError
from harness.mutate.sites import Block, blocks
from harness.mutate.source import FunctionNode

WILDCARD = "ANY"
_SKIPPED = ("ctx", "type_comment", "kind", "type_params", "lineno", "col_offset", "end_lineno", "end_col_offset")


def statement(text: str) -> ast.stmt:
    """A pattern of one statement. PatternGoneError for what is none."""
    body = _parsed(text, "exec").body
    if len(body) != 1:
        raise PatternGoneError(f"the pattern {text!r} is not one statement")
    found: ast.stmt = body[0]
    return found


def expression(text: str) -> ast.expr:
    """A pattern of one expression. PatternGoneError for what is none."""
    found: ast.expr = _parsed(text, "eval").body
    return found


def _parsed(text: str, mode: str) -> Any:
    try:
        return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError) as error:
        raise PatternGoneError(f"the pattern {text!r} is not Python: {error}") from error


def _rest(node: Any) -> bool:
    inner = node.value if isinstance(node, ast.Expr) else node
    return isinstance(inner, ast.Constant) and inner.value is Ellipsis


def matches(pattern: Any, node: Any) -> bool:
    """Whether `node` has the structure of `pattern`."""
    if isinstance(pattern, ast.Name) and pattern.id == WILDCARD:
        return isinstance(node, ast.expr)
    if isinstance(pattern, list):
        return isinstance(node, list) and _lists(pattern, node)
    if not isinstance(pattern, ast.AST):
        return type(pattern) is type(node) and bool(pattern == node)
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, ast.Call) and isinstance(node, ast.Call):
        return _calls(pattern, node)
    return all(
        matches(value, getattr(node, name, None)) for name, value in ast.iter_fields(pattern) if name not in _SKIPPED
    )


def _lists(patterns: list[Any], nodes: list[Any]) -> bool:
    for i, pattern in enumerate(patterns):
        if _rest(pattern):
            after = patterns[i + 1 :]
            return any(_lists(after, nodes[j:]) for j in range(i, len(nodes) + 1))
        if i >= len(nodes) or not matches(pattern, nodes[i]):
            return False
    return len(patterns) == len(nodes)


def _calls(pattern: ast.Call, node: ast.Call) -> bool:
    if not matches(pattern.func, node.func) or not _lists(list(pattern.args), list(node.args)):
        return False
    open_ended = any(_rest(a) for a in pattern.args)
    given = {k.arg: k.value for k in node.keywords}
    wanted = {k.arg: k.value for k in pattern.keywords}
    if not open_ended and set(given) != set(wanted):
        return False
    return all(name in given and matches(value, given[name]) for name, value in wanted.items())


def find_statement(function: FunctionNode, text: str, nth: int | None = None) -> tuple[Block, int]:
    """Where the statement is: block and index there. PatternGoneError unless exactly one matches (or the nth)."""
    pattern = statement(text)
    found = [(block, i) for block, _ in blocks(function) for i, node in enumerate(block.body) if matches(pattern, node)]
    found.sort(key=lambda at: (at[0].body[at[1]].lineno, at[0].body[at[1]].col_offset))
    block, at = _one(found, text, nth)
    return block, at


def find_expression(function: FunctionNode, text: str, nth: int | None = None) -> tuple[ast.AST, str, int | None]:
    """Where the expression hangs: holder, field and index. PatternGoneError unless exactly one matches (or the nth)."""
    pattern = expression(text)
    found = [at for at in _expressions(function) if matches(pattern, _at(at))]
    found.sort(key=lambda at: (_at(at).lineno, _at(at).col_offset))
    holder, name, index = _one(found, text, nth)
    return holder, name, index


def _one(found: list[Any], text: str, nth: int | None) -> Any:
    if not found:
        raise PatternGoneError(f"no code matches {text!r} any more")
    if nth is None and len(found) > 1:
        raise PatternGoneError(f"{len(found)} places match {text!r}; name one with nth")
    try:
        return found[nth or 0]
    except IndexError:
        raise PatternGoneError(f"only {len(found)} places match {text!r}") from None


def _at(at: tuple[ast.AST, str, int | None]) -> Any:
    holder, name, index = at
    value = getattr(holder, name)
    return value if index is None else value[index]


def _expressions(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            for i, child in enumerate(value):
                if isinstance(child, ast.expr):
                    yield node, name, i
                if isinstance(child, ast.AST):
                    yield from _expressions(child)
        elif isinstance(value, ast.AST):
            if isinstance(value, ast.expr):
                yield node, name, None
            yield from _expressions(value)
