"""The HTTP front: one engine core behind FastAPI and uvicorn, in real time times a scale.

Every request goes to the core as it came (method, path, query, raw body, bearer); status and body come from the core.
`Freeze` stops the process's event loop for real, and `Die` kills the process tree: callers hang, then see a dropped
connection, then refused connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from fakes.engine.auth import Decision, decide
from fakes.engine.profiles import profile as profile_of
from fakes.engine.protocol import Die, Done, EngineConfig, IpcTurn, OpenPayload, ReadDisk, Tick
from fakes.engine.routes import Route
from fakes.engine.routes import routes as routes_of
from fakes.fronts.app import Application, application
from fakes.fronts.exchange import answer
from fakes.fronts.io import Performer, Resolver
from fakes.fronts.log import tell
from fakes.fronts.shell import Core, Shell
from fakes.trace import TraceWriter
from fakes.transport.gloo import GlooTransport
from fakes.transport.peers import Later, Transport

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

    from fakes.transport.ipc import Sockets
    from fakes.transport.zmq_sockets import ZmqSockets

SETTLE_TURNS = 20
"""Turns of the event loop that a reply takes from the core to its socket, and some more."""


class ThreadedPerformer(Performer):
    """Performs I/O beside the event loop: a first torch payload imports torch; the tokenizer side answers meanwhile."""

    def __init__(self, config: EngineConfig, name: str, resolver: Callable[[], Resolver]) -> None:
        super().__init__(config, name, resolver=resolver, sockets=self._open_sockets)
        self._zmq: ZmqSockets | None = None
        self._pool = ThreadPoolExecutor(max_workers=max(1, config.tp_size), thread_name_prefix="io")

    def perform(self, effect: OpenPayload | ReadDisk, finish: Callable[[Done], None], later: Later) -> None:
        """Do it in a thread; `finish` runs on the event loop."""
        loop = asyncio.get_running_loop()
        future = self._pool.submit(self.done, effect)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(finish, done.result()))

    def ipc(self, effect: IpcTurn, finish: Callable[[Done], None], later: Later) -> None:
        """Wait for a parameter server in a thread."""
        loop = asyncio.get_running_loop()
        self._pool.submit(super().ipc, effect, lambda done: _on(loop, finish, done), later)

    def _open_sockets(self) -> Sockets:
        """Real ones, for a real parameter server. ImportError without pyzmq."""
        from fakes.transport.zmq_sockets import ZmqSockets

        self._zmq = ZmqSockets()
        return self._zmq

    def live_resolver(self) -> Resolver:
        """Shared memory, mapped."""
        from fakes.trainer.torch_wire import MappedResolver

        return MappedResolver()

    def close(self) -> None:
        """Nothing waits any longer for a parameter server."""
        if self._zmq is not None:
            self._zmq.close_all()


def _on(loop: asyncio.AbstractEventLoop, finish: Callable[[Done], None], done: Done) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
        loop.call_soon_threadsafe(finish, done)


def _torch_resolver() -> Resolver:
    """Opens torch's CPU shared memory: what unrelated processes can hand to each other without a GPU."""
    from fakes.trainer.torch_wire import TorchResolver

    return TorchResolver()


class HttpFront:
    """One engine over HTTP. Create it before the event loop runs; `start()` inside the loop.

    `scale` is real seconds per second of the core; `epoch` is the CLOCK_MONOTONIC value at the core's time 0.
    `routes` are those of the profile unless another core has its own. `on_death` replaces the kill (tests).
    """

    def __init__(
        self,
        core: Core,
        config: EngineConfig,
        *,
        name: str = "e0",
        incarnation: int = 0,
        scale: float = 1.0,
        epoch: float | None = None,
        trace: TraceWriter | None = None,
        resolver: Callable[[], Resolver] = _torch_resolver,
        transport: Transport | None = None,
        max_body: int = 256 << 20,
        on_death: Callable[[Die], None] | None = None,
        routes: Mapping[str, Route] | None = None,
    ) -> None:
        self.scale = scale
        self.epoch = time.monotonic() if epoch is None else epoch
        self.max_body = max_body
        self.config = config
        self.profile = profile_of(config.profile)
        self.routes = routes_of(self.profile) if routes is None else routes
        self.parent_fd: int | None = None
        self._ids = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._holding: asyncio.Task[None] | None = None
        self._performer = ThreadedPerformer(config, name, resolver)
        self.shell = Shell(
            core,
            name=name,
            incarnation=incarnation,
            now=self.now,
            later=self._later,
            io=self._performer,
            transport=transport or GlooTransport(scale),
            trace=trace,
            after_step=self._arm,
        )
        self.shell.on_die = on_death or _die
        self.shell.on_fact = _log
        self.shell.on_freeze = self._freeze

    def now(self) -> float:
        """The core's time, in its seconds."""
        return (time.monotonic() - self.epoch) / self.scale

    def start(self) -> None:
        """Let the core's deadlines run on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._arm()

    def close(self) -> None:
        """Let go of what would keep the process: threads that wait."""
        self._performer.close()

    def application(self) -> FastAPI:
        """The ASGI application."""

        async def answered(request: Request) -> Application:
            return await answer(request, self.shell, lambda: next(self._ids), self.max_body)

        def decided(method: str, path: str, bearer: str | None) -> Decision:
            return decide(self.profile, self.config, self.routes, method, path, bearer)

        return application(self.profile, self.routes, answered, decided)

    # Time.

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        assert self._loop is not None
        self._loop.call_later(delay_s * self.scale, action)

    def _arm(self) -> None:
        """Set the timer to the core's next deadline; called after every step."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.shell.deadline()
        if due is not None and self._loop is not None:
            self._timer = self._loop.call_later(max(0.0, (due - self.now()) * self.scale), self._tick)

    def _tick(self) -> None:
        # One step per turn of the loop: a core that is slower than its own clock must not starve the sockets.
        due = self.shell.deadline()
        if due is not None and due <= self.now():
            self.shell.feed(Tick())
        else:
            self._arm()

    def _freeze(self, until: float) -> None:
        self._holding = asyncio.ensure_future(self._hold(until))

    async def _hold(self, until: float) -> None:
        """Sleep on the event loop, as SGLang's SIGQUIT handler does; what was said before still goes out."""
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)
        watched = [] if self.parent_fd is None else [self.parent_fd]
        while (left := (until - self.now()) * self.scale) > 0:
            if select.select(watched, [], [], left)[0]:
                end_if_orphaned(watched[0])


def _log(name: str, data: dict[str, Any]) -> None:
    """What SGLang's log says of a scheduler's exception (managers/scheduler.py:6372@0.5.23), without the traceback."""
    if name == "raise":
        text = f"Scheduler hit an exception: {data.get('type')}: {data.get('message')}"
        tell(text)


def _die(died: Die) -> None:
    """As SGLang's SIGQUIT handler (managers/tokenizer_manager.py:4072@0.5.23)."""
    from fakes.fronts.caller import kill_this_process_tree

    text = "SIGQUIT received. It usually means one child failed."
    text = f"{text} rank {died.rank}: {died.error.type}: {died.error.message}"
    tell(text)
    kill_this_process_tree()


def listener(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet. OSError when the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, or asyncio leaves Nagle's algorithm on and every reply takes 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound


def serve(
    front: HttpFront,
    bound: socket.socket,
    *,
    log_level: str = "info",
    ready: Callable[[int], None] = lambda port: None,
    parent_fd: int | None = None,
) -> None:
    """Serve on a bound socket until SIGTERM, SIGINT or the engine's death. `ready(port)`: connects succeed from now on.

    `parent_fd` is the reading end of a pipe: when its last writer is gone, so is this process.
    """
    import uvicorn

    config = uvicorn.Config(
        front.application(), log_level=log_level, lifespan="off", timeout_keep_alive=5, timeout_graceful_shutdown=2,
        ws="none",
    )  # fmt: skip
    front.parent_fd = parent_fd

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready(bound.getsockname()[1])

    async def main() -> None:
        front.start()
        if parent_fd is not None:
            asyncio.get_running_loop().add_reader(parent_fd, end_if_orphaned, parent_fd)
        await Announcing(config).serve(sockets=[bound])

    try:
        asyncio.run(main())
    finally:
        front.close()


def end_if_orphaned(parent_fd: int) -> None:
    """End this process tree when nobody holds the other end of the pipe."""
    if not os.read(parent_fd, 1):
        from fakes.fronts.caller import kill_this_process_tree

        kill_this_process_tree()
