"""A recording as a thing that runs: one door per upstream, one history, until it is closed."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fakes.trace import Header
from harness.errors import UsageError
from real_runs.recording.keeper import Keeper, RecordedEngine, Recording
from real_runs.recording.keeping import MOST_BODY, Keeping
from real_runs.recording.marks import HELD_ON_PURPOSE, NOT_JUDGED
from real_runs.recording.passing import Passing, server_of
from real_runs.recording.trace import MOST_BYTES, RecordingTrace

if TYPE_CHECKING:
    import uvicorn


@dataclass(frozen=True)
class Plan:
    """What is recorded: the upstream servers, e0 first, their version and tp, and where to."""

    upstreams: tuple[str, ...]
    version: str
    tp: int
    out: Path
    host: str = "127.0.0.1"
    port: int = 0
    policy: str = "resume"
    keeping: Keeping = field(default_factory=Keeping)
    most_body: int = MOST_BODY
    most_bytes: int = MOST_BYTES


CLOSE_S = 1.0  # real seconds that the end of a recording may take


class Doors:
    """Doors of several keepers on one event loop, in a thread of their own. `urls` in their order.

    UsageError where one cannot listen.
    """

    def __init__(self, keepers: Sequence[Keeper], host: str = "127.0.0.1", port: int = 0) -> None:
        self.urls: list[str] = []
        self._servers: list[uvicorn.Server] = []
        self._passing = [Passing(keeper) for keeper in keepers]
        self._sockets: list[socket.socket] = []
        for number, passing in enumerate(self._passing):
            wanted = port + number if port else 0
            try:
                server, listener = server_of(passing, host, wanted)
            except (OSError, OverflowError) as error:
                for bound in self._sockets:
                    bound.close()
                why = (error.strerror if isinstance(error, OSError) else None) or error
                raise UsageError(f"door e{number} cannot listen on {host}:{wanted}: {why}") from None
            self._servers.append(server)
            self._sockets.append(listener)
            self.urls.append(f"http://{host}:{listener.getsockname()[1]}")
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        for server, listener in zip(self._servers, self._sockets, strict=True):
            config = server.config
            config.load()
            server.lifespan = config.lifespan_class(config)
            await server.startup(sockets=[listener])
        self._ended = asyncio.Event()
        self._ready.set()
        await self._ended.wait()
        for server, listener in zip(self._servers, self._sockets, strict=True):
            for connection in list(server.server_state.connections):
                connection.transport.abort()  # type: ignore[union-attr]  # set once it is connected
            for listening in server.servers:
                listening.close()
            listener.close()
        await _no_tasks()
        for passing in self._passing:
            await passing.close()
        await self._loop.shutdown_asyncgens()
        await _no_tasks()

    def close(self) -> None:
        """Unbind every door and end what passes, in `CLOSE_S` at most. May be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(CLOSE_S)  # a peer that takes no end of its connection is not waited for
        if not self._thread.is_alive() and not self._loop.is_closed():
            self._loop.close()


async def _no_tasks() -> None:
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # one that ends may have begun another
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Recorder:
    """A recording under way; use as a context manager, or call `close`."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.trace = RecordingTrace(plan.out, say, plan.most_bytes)
        meta: dict[str, Any] = {
            **{"sut": "recorded", "policy": plan.policy, "upstreams": len(plan.upstreams)},
            "not_judged": [*NOT_JUDGED, *(HELD_ON_PURPOSE if plan.policy != "resume" else ())],
        }
        self.trace.write(Header(clock="real", lane="recorded", engine_version=plan.version, tp=plan.tp, meta=meta))
        self.recording = Recording(self.trace, len(plan.upstreams), plan.keeping)
        engines = [
            RecordedEngine(self.recording, f"e{number}", url, plan.most_body)
            for number, url in enumerate(plan.upstreams)
        ]
        try:
            self._doors = Doors(engines, plan.host, plan.port)
        except UsageError:
            self.trace.close()
            plan.out.unlink()
            raise

    @property
    def urls(self) -> list[str]:
        """Where the trainer is to call, e0 first."""
        return self._doors.urls

    def close(self) -> None:
        """End the doors and the file."""
        self._doors.close()
        self.recording.close()
        self.trace.close()  # what a connection still says is not part of it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
