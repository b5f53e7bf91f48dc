"""The running program as mutants see it: the target modules, their live functions, and the tick in every loop."""

from __future__ import annotations

import functools
import gc
import importlib
from collections.abc import Iterable
from typing import Any

from harness.mutate.budget import Budget, instrument
from harness.mutate.jobs import Undo
from harness.mutate.mutant import PatternGoneError
from harness.mutate.source import Function, FunctionNode, Live, Source, TargetError, read

OURS = ("fakes.engine.memo:SHARED",)
"""What the fake engine remembers across engines."""
_CACHE = type(functools.lru_cache(lambda: None))


def _named(text: str) -> Any:
    """The object `module:name` that has a `clear`."""
    module, _, name = text.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise TargetError(f"cache {text}: {error}") from error
    if not callable(getattr(found, "clear", None)):
        raise TargetError(f"cache {text}: it has no clear()")
    return found


class Program:
    """The target modules of a session, imported and read once. `caches` names objects that have a `clear()`."""

    def __init__(self, targets: Iterable[str], caches: Iterable[str] = ()) -> None:
        self.sources: dict[str, Source] = {name: read(name) for name in targets}
        self.budget = Budget()
        self.budget.start()
        self._live = Live(list(self.sources.values()))
        self.dead: list[Function] = []
        self._caches: list[Any] = []
        self._clearable = [_named(text) for text in (*OURS, *caches)]

    def source(self, name: str) -> Source:
        """A target module; one that is not a target of the session is read now."""
        if name not in self.sources:
            self.sources[name] = read(name)
            self._live = Live(list(self.sources.values()))
        return self.sources[name]

    def prepare(self) -> None:
        """Look for live functions again (after collection imported more), and put ticks into all of them."""
        self._live = Live(list(self.sources.values()))
        self.dead = []
        self._caches = [c for c in gc.get_objects() if type(c) is _CACHE and c.__module__ in self.sources]
        for source in self.sources.values():
            for function in source.functions:
                if not self._live.install(source, function, instrument(function.node)):
                    self.dead.append(function)

    def probe(self, source: Source, function: Function, node: FunctionNode) -> bool:
        """Put `node` in place of the live function for good; False when that cannot be done."""
        try:
            return bool(self._live.install(source, function, node))
        except (SyntaxError, ValueError):
            return False

    def swap(self, source: Source, function: Function, node: FunctionNode) -> Undo:
        """Put the changed function in place of the live one; what is returned puts the old one back.

        Both times everything that the targets have cached is forgotten.
        """
        self.forget()
        before = self._live.install(source, function, instrument(node))
        if not before:
            raise PatternGoneError(
                f"{source.name}:{function.qualname} is not alive: it was replaced after its definition"
            )

        def undo() -> None:
            for thing, code in before:
                thing.__code__ = code
            self.forget()

        return undo

    def forget(self) -> None:
        """Empty the caches of the targets: of functions, and those that were named."""
        for cached in self._caches:
            cached.cache_clear()
        for cache in self._clearable:
            cache.clear()
