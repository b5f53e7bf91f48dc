"""The running program as mutants see it: the target modules, their live functions, and the tick in every loop."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable
from typing import Any

from harness.mutate.budget import Budget, instrument
from harness.mutate.mutant import PatternGoneError
from harness.mutate.source import Function, FunctionNode, Live, Source, read

_CACHE = type(functools.lru_cache(lambda: None))


class Program:
    """The target modules of a session, imported and read once."""

    def __init__(self, targets: Iterable[str]) -> None:
        self.sources: dict[str, Source] = {name: read(name) for name in targets}
        self.budget = Budget()
        self.budget.start()
        self._live = Live(list(self.sources.values()))
        self.dead: list[Function] = []
        self._caches: list[Any] = []

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

    def swap(self, source: Source, function: Function, node: FunctionNode) -> None:
        """Put the changed function in place of the live one, and forget what functions of its module have cached."""
        for cached in self._caches:
            if cached.__module__ == source.name:
                cached.cache_clear()
        if not self._live.install(source, function, instrument(node)):
            raise PatternGoneError(
                f"{source.name}:{function.qualname} is not alive: it was replaced after its definition"
            )
