"""The running program as mutants see it: the target modules, their live functions, and the tick in every loop."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from harness.mutate.budget import Budget, instrument
from harness.mutate.jobs import Undo
from harness.mutate.live import Live, Swapped
from harness.mutate.mutant import PatternGoneError
from harness.mutate.remembered import Remembered
from harness.mutate.source import Function, FunctionNode, Source, TargetError, read

OURS = ("fakes.engine.memo:SHARED",)
"""What the fake engine remembers across engines."""
Redo = Callable[[], Undo]
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


def _putter(before: Swapped) -> Undo:
    def put() -> None:
        for thing, code in before:
            thing.__code__ = code

    return put


class Program:
    """The target modules of a session, imported and read once. `caches` names objects that have a `clear()`.

    `remember`: all that is changed is functions by `swap`, so that what none of them reaches may be remembered.
    """

    def __init__(self, targets: Iterable[str], caches: Iterable[str] = (), *, remember: bool = False) -> None:
        self.sources: dict[str, Source] = {name: read(name) for name in targets}
        self.budget = Budget()
        self.budget.start()
        self.remembered = Remembered()
        self._remember = remember
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
        if self._remember:
            self.remembered.install()
        self._live = Live(list(self.sources.values()))
        self.dead = []
        self._caches = [c for c in gc.get_objects() if type(c) is _CACHE and c.__module__ in self.sources]
        for source in self.sources.values():
            for function in source.functions:
                if not self._live.install(source, function, instrument(function.node)):
                    self.dead.append(function)

    def probe(self, source: Source, function: Function, node: FunctionNode) -> list[Undo]:
        """Put `node` as it is in place of the live function; what undoes that, nothing when it cannot be done."""
        try:
            before = self._live.install(source, function, node)
        except (SyntaxError, ValueError):
            return []
        return [_putter(before)] if before else []

    def swap(self, source: Source, function: Function, node: FunctionNode) -> Undo:
        """Put the changed function in place of the live one; what is returned puts the old one back.

        Both times everything that the targets have cached is forgotten.
        """
        return self.made(source, function, node)()

    def made(self, source: Source, function: Function, node: FunctionNode) -> Redo:
        """The changed function, compiled: what is returned does each time what `swap` does."""
        before = self._live.install(source, function, instrument(node))
        if not before:
            raise PatternGoneError(
                f"{source.name}:{function.qualname} is not alive: it was replaced after its definition"
            )
        out, into = _putter(before), _putter([(thing, thing.__code__) for thing, _ in before])
        out()

        def redo() -> Undo:
            computing = self.computing({source.name})
            computing.__enter__()
            self.forget()
            into()

            def undo() -> None:
                out()
                self.forget()
                computing.__exit__(None, None, None)

            return undo

        return redo

    @contextlib.contextmanager
    def computing(self, modules: Iterable[str]) -> Iterator[None]:
        """What runs through these modules is run and not remembered: it matters which of their lines are."""
        reached = not self.remembered.reads.isdisjoint(modules)
        if reached:
            self.remembered.hold()
        try:
            yield
        finally:
            if reached:
                self.remembered.release()

    def forget(self) -> None:
        """Empty the caches of the targets: of functions, and those that were named."""
        for cached in self._caches:
            cached.cache_clear()
        for cache in self._clearable:
            cache.clear()
