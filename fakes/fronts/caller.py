"""Calls that end as those of SGLang's Engine do: a value, an exception, or the end of the calling process."""

from __future__ import annotations

import builtins
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from fakes.engine.protocol import Raised
from fakes.outcome import Outcome
from fakes.world.fleet import Ticket, WorldEngine
from fakes.world.world import World

Death = Literal["raise", "process"]


class EngineDied(BaseException):
    """The engine is dead. SGLang would have killed the calling process: no `except Exception` may survive it.

    `error` is what killed it, None when that is not known.
    """

    def __init__(self, engine: WorldEngine) -> None:
        died = engine.shell.dead
        self.engine = engine.name
        self.incarnation = engine.incarnation
        self.error: Raised | None = died.error if died else None
        cause = f"{self.error.type}: {self.error.message}" if self.error else "unknown"
        super().__init__(f"engine {engine.name} died of {cause}")


class FlushCacheReqOutput(msgspec.Struct):
    """What Engine.flush_cache returns (managers/io_struct.py@0.5.23)."""

    success: bool
    message: str = ""


def kill_this_process_tree() -> None:
    """SIGKILL for all children and this process, as SGLang's SIGQUIT handler does (utils/common.py:2507@0.5.23)."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    os.kill(os.getpid(), signal.SIGKILL)


class Caller:
    """Calls that end as SGLang's do: a value, an exception of the tokenizer manager, or the end of the process."""

    def __init__(self, world: World, engine: WorldEngine, death: Death) -> None:
        self.world = world
        self.engine = engine
        self.death = death

    def submit(self, op: str, fields: Mapping[str, Any], method: str = "POST") -> Ticket:
        """Send; the caller of a dead engine dies here."""
        if not self.engine.alive:
            self._dead()
        return self.world.submit(self.engine, method, f"/{op}", dict(fields), via="engine")

    def sync(self, op: str, fields: Mapping[str, Any], method: str = "POST") -> Any:
        """Send and wait, as `loop.run_until_complete` does."""
        return self.value(self.world.run_until(self.submit(op, fields, method)))

    async def wait(self, op: str, fields: Mapping[str, Any]) -> Any:
        """Send and await."""
        return self.value(await self.world.result(self.submit(op, fields)))

    def value(self, outcome: Outcome) -> Any:
        """What the tokenizer manager returned; raises what it raised."""
        if outcome.ending in ("dropped", "refused"):
            self._dead()
        if isinstance(outcome.value, Raised):
            raise exception_of(outcome.value)
        return outcome.value

    def _dead(self) -> None:
        if self.death == "process":
            kill_this_process_tree()
        raise EngineDied(self.engine)

    def stream(self, fields: Mapping[str, Any]) -> Iterator[Any]:
        """The chunks of a generation."""
        ticket, seen = self.submit("generate", fields), 0
        while True:
            more = self._more(ticket, seen)
            if not more():
                self.world.block(more, None, ticket.what)
            while seen < len(ticket.chunks):
                seen += 1
                yield ticket.chunks[seen - 1]
            if ticket.outcome is not None:
                self.value(ticket.outcome)
                return

    async def astream(self, fields: Mapping[str, Any]) -> AsyncIterator[Any]:
        """The chunks of a generation, awaited."""
        ticket, seen = self.submit("generate", fields), 0
        while True:
            await self.world.changed(ticket, seen)
            while seen < len(ticket.chunks):
                seen += 1
                yield ticket.chunks[seen - 1]
            if ticket.outcome is not None:
                self.value(ticket.outcome)
                return

    @staticmethod
    def _more(ticket: Ticket, seen: int) -> Callable[[], bool]:
        return lambda: ticket.outcome is not None or len(ticket.chunks) > seen


def exception_of(raised: Raised) -> Exception:
    """What SGLang's Engine would have raised: the builtin of that name, else a RuntimeError that names it."""
    kind = getattr(builtins, raised.type, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind(raised.message)
    return RuntimeError(f"{raised.type}: {raised.message}")


def pair(value: Any) -> tuple[bool, str]:
    """(success, message)."""
    success, message = value
    return bool(success), str(message)


def flushed(value: Any) -> FlushCacheReqOutput:
    """FlushCacheReqOutput, whatever the core called it."""
    if isinstance(value, Mapping):
        return FlushCacheReqOutput(bool(value["success"]), str(value.get("message", "")))
    if isinstance(value, tuple):
        return FlushCacheReqOutput(*pair(value))
    return FlushCacheReqOutput(bool(value.success), str(value.message))
