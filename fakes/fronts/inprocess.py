"""The in-process fronts: `Server` is an HTTP server without a socket, `Engine` is SGLang's Engine object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fakes.fronts.caller import EngineDied
from fakes.fronts.engine_object import Engine, SessionEngine
from fakes.outcome import Outcome
from fakes.world.fleet import Ticket, WorldEngine
from fakes.world.world import World

__all__ = ["Engine", "EngineDied", "PendingCall", "Server", "SessionEngine"]

DEFAULT_TIMEOUT_S = 60.0


class Server:
    """One engine as its HTTP clients see it. Every ending is an `Outcome`; nothing is raised for what the engine does.

    Times are virtual seconds. A request that reaches its timeout closes its connection (the core gets Cancel).
    """

    def __init__(self, world: World, engine: WorldEngine) -> None:
        self.world = world
        self.engine = engine

    @property
    def alive(self) -> bool:
        """Whether somebody still listens."""
        return self.engine.alive

    def request(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        content: bytes | None = None,
        query: Mapping[str, str] | None = None,
        bearer: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Outcome:
        """Call and wait. `path` with or without its first slash; `content` is a raw body instead of `json`."""
        pending = self.start(method, path, json, content=content, query=query, bearer=bearer, timeout_s=timeout_s)
        return pending.result()

    def start(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        content: bytes | None = None,
        query: Mapping[str, str] | None = None,
        bearer: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> PendingCall:
        """Call in the background."""
        body = json if content is None else content
        ticket = self.world.submit(
            self.engine, method, "/" + path.removeprefix("/"), body, query, bearer, "http", timeout_s=timeout_s
        )
        return PendingCall(self.world, ticket)


class PendingCall:
    """A call in the background."""

    def __init__(self, world: World, ticket: Ticket) -> None:
        self.ticket = ticket
        self._world = world

    @property
    def done(self) -> bool:
        """Whether it ended."""
        return self.ticket.done

    @property
    def chunks(self) -> list[Any]:
        """What was streamed so far."""
        return self.ticket.chunks

    def result(self, timeout_s: float | None = None) -> Outcome:
        """Wait for the end, at most `timeout_s`: then ending "timeout", but the call goes on until its own timeout."""
        if timeout_s is None:
            return self._world.run_until(self.ticket)
        return self._world.wait(self.ticket, timeout_s)

    def cancel(self) -> None:
        """Close the connection."""
        self.ticket.cancel()
