"""A reverse proxy on loopback that hands every exchange to a keeper: sockets and bytes here, decisions there.

One `Proxy` is a thread with an event loop; `open` gives it one more door, a listener before one server. What passes is
passed byte for byte: request and response bodies are never decoded, streams of server-sent events go on chunk by
chunk. A keeper says of each request whether it is delivered, delayed, hung or fatal, and sees each answer before the
client does (`harness.proxy_gate` is the one that records and applies faults).

What the server does to a connection, the client sees: cut without an answer when the server cut it; reset when the
server refused it. The listener itself stays, so that calls to a dead server are known to the keeper too.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING, Any

from harness.exchange import Asked, Exchange, Keeper, Send, new_client

if TYPE_CHECKING:
    import httpx
    import uvicorn

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

CLOSE_S = 60.0
"""So long its thread may take to do what it is told: only a machine that hardly moves needs more than a moment."""


class Proxy:
    """A thread that serves doors. `close` ends every exchange, unbinds every door and ends the thread.

    It is a daemon thread of this process, so a killed process leaves nothing behind.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._servers: list[uvicorn.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._open: dict[asyncio.Task[None], asyncio.Future[None]] = {}
        self._client: httpx.AsyncClient | None = None

    def open(self, keeper: Keeper, host: str = "127.0.0.1", port: int = 0) -> str:
        """A door; its url. Port 0 is any free one. OSError when the address cannot be bound."""
        # With its protocol named, or asyncio leaves Nagle's algorithm on and every reply takes 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            self._run(self._listen(keeper, listener))
        except BaseException:
            listener.close()
            raise
        return f"http://{host}:{listener.getsockname()[1]}"

    def sync(self) -> None:
        """Return when what clients did so far, going away above all, has reached the keepers."""
        self._run(self._left())

    def close(self) -> None:
        """May be called twice."""
        if self._thread.is_alive():
            self._run(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_S)
            self._loop.close()

    def _run(self, work: Any) -> None:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            future.result(CLOSE_S)
        except NotYet:
            future.cancel()
            raise

    async def _listen(self, keeper: Keeper, listener: socket.socket) -> None:
        import uvicorn

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            await self._serve(keeper, scope, receive, send)

        # uvicorn's loggers belong to the whole process: they are left as they are.
        config = door_config(application)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        self._servers.append(server)

    async def _left(self) -> None:
        await _turns()
        while any(gone.done() for gone in self._open.values()):
            await asyncio.sleep(0)

    async def _stop(self) -> None:
        for server in self._servers:
            for listening in server.servers:
                listening.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers:
            for connection in list(server.server_state.connections):
                connection.transport.abort()  # type: ignore[union-attr]  # set once it is connected
        await _turns()
        if self._client is not None:
            await self._client.aclose()

    async def _serve(self, keeper: Keeper, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this proxy speaks HTTP only, not {scope['type']}")
        if self._client is None:
            self._client = new_client()
        asked = await _asked(scope, receive)
        if asked is None:
            return  # its client left before it had said all
        gone = asyncio.ensure_future(_gone(receive))
        exchange = Exchange(keeper, self._client, asked, gone, send, scope["state"]["transport"], self._keep)
        task = asyncio.ensure_future(exchange.run())
        self._keep(task)
        self._open[task] = gone
        await asyncio.wait({task})
        del self._open[task]
        if task.cancelled():
            await asyncio.wait({gone})
            return
        gone.cancel()
        task.result()

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def door_config(application: Any) -> uvicorn.Config:
    """A bare HTTP/1.1 server of an ASGI application that may cut its connection: it logs nothing and adds no header."""
    import uvicorn

    return uvicorn.Config(
        application,
        http=_door_protocol(),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )


def _door_protocol() -> Any:
    """The protocol of a server whose applications may cut their connection."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Door(H11Protocol):
        """uvicorn's, whose requests know their connection: to cut it without an answer is no part of ASGI."""

        # asyncio's base class says BaseTransport; a TCP server is always given a Transport.
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.app_state = {**self.app_state, "transport": transport}

    return Door


async def _asked(scope: Scope, receive: Receive) -> Asked | None:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers = tuple((bytes(name).lower(), bytes(value)) for name, value in scope["headers"])
    return Asked(scope["method"], target, headers, b"".join(parts))


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _turns() -> None:
    for _ in range(4):  # a closed socket is seen, is lost, and its exchange is told
        await asyncio.sleep(0)
