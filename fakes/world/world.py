"""The world: time, the engines of a fleet, and the calls between them and the participants."""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fakes.engine.protocol import Call, EngineConfig, Via
from fakes.fronts.shell import Core, Shell
from fakes.outcome import Outcome
from fakes.trace import Fact, TraceWriter
from fakes.transport.collective import Collectives
from fakes.transport.ipc import Hub
from fakes.transport.peers import Transport
from fakes.world.baton import Baton, Deadlock, WorldBroken
from fakes.world.fleet import Ticket, WorldEngine
from fakes.world.meet import Barrier, Group, Lock

if TYPE_CHECKING:
    import numpy as np

    from fakes.fronts.io import Performer, Resolver

T = TypeVar("T")

MakeCore = Callable[[EngineConfig, "Mapping[str, np.ndarray]", dict[str, Any]], Core]

TRANSIT_S = 0.002
"""From a caller to the engine, virtual. A control call took 2 to 5 ms on the real one (observed on 0.5.23, cpu);
without a cost, a client that polls without sleeping would never reach its deadline."""

MAX_CALLS = 200_000
"""More calls than any sane run makes: a client that calls for ever is stopped."""

# What happens first at one instant: arrivals and I/O, then the engines' ticks, then the callers' timeouts.
_EVENT, _TIMEOUT = 0, 1


class WorldClock:
    """The world's time as clients see it, in virtual seconds."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        """Seconds since the world began."""
        return self._world.now

    def sleep(self, seconds: float) -> None:
        """Let time pass; others run meanwhile."""
        self._world.sleep(seconds)


class World(Baton):
    """Virtual time for engines, clients and trainer ranks in one process. Deterministic by `seed`.

    `trace` receives the core's facts. `resolver` opens simulated CUDA-IPC handles (`fakes.trainer`'s export registry).
    `transport` brings weight-update groups together. `make_core` replaces the engine (tests, mutants). Use as a context
    manager, or call `close()`: participants that still wait are ended.
    """

    def __init__(
        self,
        seed: int = 0,
        trace: TraceWriter | None = None,
        *,
        resolver: Resolver | None = None,
        transport: Transport | None = None,
        make_core: MakeCore | None = None,
        transit_s: float = TRANSIT_S,
        io_latency_s: float = 0.0,
        max_calls: int = MAX_CALLS,
    ) -> None:
        super().__init__(seed)
        self.trace = trace
        self.resolver = resolver
        self.transport: Transport = transport or Collectives()
        self.ipc = Hub()
        self.transit_s = transit_s
        self.io_latency_s = io_latency_s
        self.clock = WorldClock(self)
        self.engines: dict[str, WorldEngine] = {}
        self._make_core = make_core
        self._incarnations: dict[str, int] = {}
        self._max_calls = max_calls
        self._calls = 0
        self._events: list[tuple[float, int, int, Callable[[], None], Ticket | None]] = []
        self._order = itertools.count()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Engines.

    def add_engine(
        self,
        name: str,
        config: EngineConfig,
        weights: Mapping[str, np.ndarray],
        model_config: dict[str, Any],
        *,
        make_core: MakeCore | None = None,
    ) -> WorldEngine:
        """Start an engine with HF-named `weights`. A name that exists gets its next incarnation; the former dies."""
        former = self.engines.get(name)
        if former is not None and former.alive:
            former.kill("replaced by its next incarnation")
        incarnation = self._incarnations.get(name, -1) + 1
        self._incarnations[name] = incarnation
        core = (make_core or self._make_core or _engine_core)(config, weights, model_config)
        shell = Shell(
            core,
            name=name,
            incarnation=incarnation,
            now=lambda: self.now,
            later=self.at,
            io=self._performer(config, name),
            transport=self.transport,
            trace=self.trace,
        )
        engine = WorldEngine(self, name, incarnation, config, core, shell)
        self.engines[name] = engine
        return engine

    # Calls.

    def submit(
        self,
        engine: WorldEngine | str,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        bearer: str | None = None,
        via: Via = "http",
        *,
        timeout_s: float | None = None,
    ) -> Ticket:
        """Send a call and go on. It reaches the engine `transit_s` later. After `timeout_s` the caller closes the
        connection: ending "timeout", and the core gets Cancel.
        """
        target = self.engines[engine] if isinstance(engine, str) else engine
        with self._state:
            self._calls += 1
            if self._calls > self._max_calls:
                raise WorldBroken(f"more than {self._max_calls} calls in one world: a client calls for ever")
            call = Call(
                id=self._calls, path=path, method=method, body=body, query=dict(query or {}), bearer=bearer, via=via
            )
            ticket = Ticket(self, target, call, timeout_s)
            self.at(self.transit_s, lambda: self._arrive(ticket))
            if ticket.deadline is not None:
                self._push(ticket.deadline, _TIMEOUT, ticket.time_out, ticket)
        return ticket

    def call(
        self,
        engine: WorldEngine | str,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        bearer: str | None = None,
        via: Via = "http",
        *,
        timeout_s: float | None = None,
    ) -> Outcome:
        """Submit and wait for the end. Without `timeout_s` for ever, as SGLang's Engine does: see `DeadlockError`."""
        return self.run_until(self.submit(engine, method, path, body, query, bearer, via, timeout_s=timeout_s))

    def run_until(self, ticket: Ticket, timeout_s: float | None = None) -> Outcome:
        """Wait for the end of a call; after `timeout_s` from now its caller gives up and closes the connection."""
        until = None if timeout_s is None else self.now + timeout_s
        if not self.block(lambda: ticket.outcome is not None, until, ticket.what):
            ticket.time_out()
        assert ticket.outcome is not None
        return ticket.outcome

    def wait(self, ticket: Ticket, timeout_s: float) -> Outcome:
        """Wait at most `timeout_s`; ending "timeout" when it is not over by then, but the call goes on."""
        if self.block(lambda: ticket.outcome is not None, self.now + timeout_s, ticket.what):
            assert ticket.outcome is not None
            return ticket.outcome
        return Outcome(ending="timeout", error=f"not done after {timeout_s:g} s", elapsed_s=self.now - ticket.submitted)

    # Asyncio. Imported late: most worlds have no use for it.

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """`asyncio.run` in virtual time: sleeps, timeouts and engine calls all pass on the world's clock."""
        from fakes.world.event_loop import run

        return run(self, coroutine)

    async def result(self, ticket: Ticket) -> Outcome:
        """Await the end of a call, on this world's event loop or any other. A cancelled waiter closes its call."""
        await self.changed(ticket, None)
        assert ticket.outcome is not None
        return ticket.outcome

    async def changed(self, ticket: Ticket, seen: int | None) -> None:
        """Await more than `seen` chunks, or the end; None: only the end."""
        from fakes.world.event_loop import changed

        if not ticket.done and (seen is None or len(ticket.chunks) <= seen):
            await changed(self, ticket, sys.maxsize if seen is None else seen)

    # Time.

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run `action()` after `delay_s`, whoever holds the baton then. It must not block."""
        self._push(self.now + delay_s, _EVENT, action)

    def patched_time(self) -> AbstractContextManager[None]:
        """The time module in virtual time, for a client that uses it; see `fakes.world.patched_time`."""
        from fakes.world.patched_time import patched_time

        return patched_time(self)

    # Meeting points.

    def barrier(self, parties: int, name: str = "barrier") -> Barrier:
        """A barrier for `parties` participants."""
        return Barrier(self, parties, name)

    def lock(self, name: str = "lock") -> Lock:
        """A lock between participants."""
        return Lock(self, name)

    def group(self, size: int, name: str = "group") -> Group:
        """Collectives between `size` ranks."""
        return Group(self, size, name)

    # The schedule.

    def _push(self, when: float, priority: int, action: Callable[[], None], ticket: Ticket | None = None) -> None:
        with self._state:
            heapq.heappush(self._events, (when, priority, next(self._order), action, ticket))

    def _arrive(self, ticket: Ticket) -> None:
        if ticket.done:
            return
        shell = ticket.engine.shell
        if shell.dead is not None:
            ticket.refuse()
        else:
            shell.call(ticket.call, ticket)

    def _pump(self) -> None:
        events = self._events
        while True:
            if events and events[0][0] <= self.now and events[0][1] == _EVENT:
                heapq.heappop(events)[3]()
            elif self._tick_engines():
                continue
            elif events and events[0][0] <= self.now:
                heapq.heappop(events)[3]()
            else:
                return

    def _tick_engines(self) -> bool:
        """Every engine's turn at this instant; a tick of one may make work for another."""
        ticked = False
        for engine in list(self.engines.values()):
            ticked = engine.shell.tick() or ticked
        return ticked

    def _next_event(self) -> float | None:
        events = self._events
        while events and events[0][4] is not None and events[0][4].done:
            heapq.heappop(events)  # The timeout of a call that has ended: nothing will happen then.
        nearest = events[0][0] if events else None
        for engine in self.engines.values():
            due = engine.shell.deadline()
            if due is not None and (nearest is None or due < nearest):
                nearest = due
        return nearest

    def _on_deadlock(self, deadlock: Deadlock) -> None:
        if self.trace is not None:
            data = {
                "waiting": [msgspec.to_builtins(w) for w in deadlock.waiting],
                "ended": list(deadlock.ended),
            }
            self.trace.write(Fact(t=self.now, source="harness", name="deadlock", data=data))

    def _performer(self, config: EngineConfig, name: str) -> Performer:
        from fakes.fronts.io import Performer

        return Performer(
            config, name, resolver=lambda: self.resolver, latency_s=self.io_latency_s, sockets=lambda: self.ipc
        )


def _engine_core(config: EngineConfig, weights: Mapping[str, np.ndarray], model_config: dict[str, Any]) -> Core:
    from fakes.engine.core import EngineCore

    core: Core = EngineCore(config, weights, model_config)
    return core
