"""One engine in the world, and one call to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fakes.engine.protocol import Call, EngineConfig, Reply
from fakes.fronts.shell import REFUSED, Core, Shell
from fakes.outcome import Outcome

if TYPE_CHECKING:
    from fakes.world.world import World


class Ticket:
    """One call. `outcome` is None until it ended; `chunks`: the streamed JSON objects so far; times in virtual s."""

    def __init__(self, world: World, engine: WorldEngine, call: Call, timeout_s: float | None) -> None:
        self.id = call.id
        self.call = call
        self.engine = engine
        self.submitted = world.now
        self.deadline = None if timeout_s is None else world.now + timeout_s
        self.outcome: Outcome | None = None
        self.chunks: list[Any] = []
        self._world = world
        self._watchers: list[Callable[[Ticket], None]] = []
        self._listeners: list[Callable[[Ticket], None]] = []

    def __repr__(self) -> str:
        return f"<Ticket {self.what}: {self.outcome.ending if self.outcome else 'open'}>"

    @property
    def what(self) -> str:
        """For a person: which call to whom."""
        return f"{self.engine.name} {self.call.method} {self.call.path}"

    @property
    def done(self) -> bool:
        """Whether it ended."""
        return self.outcome is not None

    def on_done(self, watcher: Callable[[Ticket], None]) -> None:
        """Call `watcher(ticket)` when it ends, at that virtual time, before its caller goes on; at once if it has."""
        if self.outcome is not None:
            watcher(self)
        else:
            self._watchers.append(watcher)

    def on_change(self, listener: Callable[[Ticket], None]) -> None:
        """Call `listener(ticket)` after every chunk and at the end."""
        self._listeners.append(listener)
        self.on_done(listener)

    def reply(self, reply: Reply) -> None:
        """The engine's last word. A stream's body is the list of its chunks."""
        body = self.chunks if reply.body is None and self.chunks else reply.body
        self.end(Outcome(ending="reply", status=reply.status, body=body, value=reply.value, elapsed_s=self._elapsed()))

    def token(self, chunk: Any) -> None:
        """One streamed chunk."""
        self.chunks.append(chunk)
        for listener in self._listeners:
            listener(self)

    def opened(self) -> None:
        """A stream has begun. A caller that waits for its end does not see it."""

    def cut(self, why: str) -> None:
        """The connection was closed amid a stream; the engine lives on."""
        self.drop(why)

    def drop(self, why: str) -> None:
        """The engine died first."""
        self.end(Outcome(ending="dropped", error=why, elapsed_s=self._elapsed()))

    def refuse(self) -> None:
        """Nobody listens at the engine's address."""
        self.end(Outcome(ending="refused", error=REFUSED, elapsed_s=self._elapsed()))

    def time_out(self) -> None:
        """The caller's patience is over: it closes the connection, which the engine notices."""
        elapsed = self._elapsed()
        self._give_up(Outcome(ending="timeout", error=f"timed out after {elapsed:.3f} s", elapsed_s=elapsed))

    def cancel(self) -> None:
        """The caller went away without waiting for its patience to end."""
        self._give_up(Outcome(ending="timeout", error="cancelled by its caller", elapsed_s=self._elapsed()))

    def _give_up(self, outcome: Outcome) -> None:
        with self._world.held():
            if self.outcome is None:
                self.end(outcome)
                self.engine.shell.cancel(self.id)

    def end(self, outcome: Outcome) -> None:
        """Set the outcome and tell who watches."""
        self.outcome = outcome
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher(self)

    def _elapsed(self) -> float:
        return self._world.now - self.submitted


class WorldEngine:
    """One incarnation of one engine. `restart` of the world makes the next."""

    def __init__(
        self, world: World, name: str, incarnation: int, config: EngineConfig, core: Core, shell: Shell
    ) -> None:
        self._world = world
        self.name = name
        self.incarnation = incarnation
        self.config = config
        self.core = core
        self.shell = shell

    def __repr__(self) -> str:
        return f"<WorldEngine {self.name}.{self.incarnation} {self.config.profile} {'alive' if self.alive else 'dead'}>"

    @property
    def alive(self) -> bool:
        """Whether its process still exists."""
        return self.shell.dead is None

    def kill(self, why: str = "killed from outside") -> None:
        """kill -9: open calls are dropped, later ones refused."""
        with self._world.held():
            self.shell.kill(why)
