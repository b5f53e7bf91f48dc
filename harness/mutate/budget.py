"""A step budget: every function entry and loop turn of the target modules counts one tick; the last ends the run.

Counting is deterministic, unlike a clock: a mutant that loops for ever ends after the same step on every machine.
A tick is one call into C (the next of a chained iterator), so that counting costs a few percent.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

from harness.mutate.source import FunctionNode
from harness.mutate.trees import Copying, changed

TICK = "__refitcheck_tick__"
MINIMUM = 200_000
FACTOR = 20
UNLIMITED = 1 << 60


class BudgetSpent(BaseException):
    """The code under mutation took many more steps than it does unmutated. Not an Exception: no handler may keep it."""


class _End:
    """What the iterator of a spent budget yields: the exception, every time."""

    def __iter__(self) -> _End:
        return self

    def __next__(self) -> Any:
        raise BudgetSpent("step budget spent: an endless loop, or nearly one")


class Budget:
    """The budget in force. `start` replaces it; `used` says how many steps were taken since."""

    def __init__(self) -> None:
        self._limit = 0
        self._left: repeat = repeat(None, 0)

    def start(self, limit: int = UNLIMITED) -> None:
        """Allow `limit` steps from now on, in all threads together."""
        self._limit = limit
        self._left = repeat(None, limit)
        tick: Callable[[], Any] = chain(self._left, _End()).__next__
        setattr(builtins, TICK, tick)

    @property
    def used(self) -> int:
        """Steps taken since `start`."""
        return self._limit - self._left.__length_hint__()  # type: ignore[attr-defined, no-any-return]

    @staticmethod
    def stop() -> None:
        """Count no more. Instrumented code needs a tick, so this one costs little and never ends."""
        setattr(builtins, TICK, repeat(None).__next__)


def limit_for(steps: int) -> int:
    """The budget of a test that takes `steps` steps unmutated."""
    return steps * FACTOR + MINIMUM


class _Ticks(Copying):
    def visit(self, node: ast.AST) -> Any:
        """Expressions have no ticks: they stay as they are, which is most of a tree."""
        return node if isinstance(node, ast.expr) else super().visit(node)

    def _loop(self, node: Any) -> Any:
        made = self.generic_visit(node)
        return changed(made, body=[_tick(node.body[0]), *made.body])

    visit_For = visit_While = visit_AsyncFor = _loop  # noqa: N815

    def _function(self, node: Any) -> Any:
        made: Any = self.generic_visit(node)
        at = 1 if ast.get_docstring(node, clean=False) is not None else 0
        return changed(made, body=[*made.body[:at], _tick(node.body[0]), *made.body[at:]])

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815


def _tick(near: ast.AST) -> ast.stmt:
    call = ast.Call(ast.Name(TICK, ast.Load()), [], [])
    made = ast.Expr(call)
    for node in ast.walk(made):
        ast.copy_location(node, near)
    return made


def instrument(node: FunctionNode) -> FunctionNode:
    """The function with a tick at its entry and at each turn of its loops; the given tree is left alone."""
    made: FunctionNode = _Ticks().visit(node)
    return made
