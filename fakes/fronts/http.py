"""The HTTP front: one engine core behind uvicorn, in real time times a scale.

Every request goes to the core as it came (method, path, query, raw body, bearer); status and body come from the core.
So there is no framework between: an ASGI function is all that is needed, and it starts in half the time.
`Die` kills the process tree for real: callers see a dropped connection, then refused connects.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from fakes.engine.protocol import Call, Die, Done, EngineConfig, OpenPayload, ReadDisk, Reply, Tick
from fakes.fronts.io import Performer, Resolver
from fakes.fronts.shell import Core, Shell
from fakes.trace import TraceWriter
from fakes.transport.peers import Later, NoPeers, Transport

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_MEDIA = {"json": b"application/json", "text": b"text/plain; charset=utf-8"}


class TooLarge(Exception):
    """A request body over the limit."""


class ThreadedPerformer(Performer):
    """Performs I/O beside the event loop: a first torch payload imports torch; the tokenizer side answers meanwhile."""

    def __init__(self, config: EngineConfig, name: str, resolver: Callable[[], Resolver]) -> None:
        super().__init__(config, name, resolver=resolver)
        self._pool = ThreadPoolExecutor(max_workers=max(1, config.tp_size), thread_name_prefix="io")

    def perform(self, effect: OpenPayload | ReadDisk, finish: Callable[[Done], None], later: Later) -> None:
        """Do it in a thread; `finish` runs on the event loop."""
        loop = asyncio.get_running_loop()
        future = self._pool.submit(self.done, effect)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(finish, done.result()))


def _torch_resolver() -> Resolver:
    """Opens torch's CPU shared memory: what unrelated processes can hand to each other without a GPU."""
    from fakes.trainer.torch_wire import TorchResolver

    return TorchResolver()


class HttpCall:
    """One open request: what the core says of it, in order."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[Reply | bytes] = asyncio.Queue()

    def reply(self, reply: Reply) -> None:
        """The last word."""
        self.said.put_nowait(reply)

    def token(self, chunk: Any) -> None:
        """One server-sent event."""
        self.said.put_nowait(b"data: " + msgspec.json.encode(chunk) + b"\n\n")

    def drop(self, why: str) -> None:
        """The process is about to be killed; nothing is left to say."""


class HttpFront:
    """The ASGI application of one engine. Create it before the event loop runs; `start()` inside the loop.

    `scale` is real seconds per second of the core; `epoch` is the CLOCK_MONOTONIC value at the core's time 0.
    `on_death` replaces the kill (tests).
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
    ) -> None:
        self.scale = scale
        self.epoch = time.monotonic() if epoch is None else epoch
        self.max_body = max_body
        self._ids = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.shell = Shell(
            core,
            name=name,
            incarnation=incarnation,
            now=self.now,
            later=self._later,
            io=ThreadedPerformer(config, name, resolver),
            transport=transport or NoPeers(),
            trace=trace,
            after_step=self._arm,
        )
        self.shell.on_die = on_death or _die
        self.shell.on_fact = _log

    def now(self) -> float:
        """The core's time, in its seconds."""
        return (time.monotonic() - self.epoch) / self.scale

    def start(self) -> None:
        """Let the core's deadlines run on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._arm()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            raise RuntimeError(f"this server speaks HTTP only, not {scope['type']}")
        try:
            body = await self._body(receive)
        except TooLarge as error:
            await _respond(send, 413, msgspec.json.encode({"detail": str(error)}), b"application/json")
            return
        opened = HttpCall()
        call = Call(
            id=next(self._ids),
            path=scope["path"],
            method=scope["method"],
            body=body or None,
            query=dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)),
            bearer=_bearer(scope["headers"]),
        )
        self.shell.call(call, opened)
        await self._answer(call, opened, receive, send)

    async def _answer(self, call: Call, opened: HttpCall, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_disconnected(receive))
        streaming = False
        try:
            while True:
                said = asyncio.ensure_future(opened.said.get())
                await asyncio.wait({said, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not said.done():
                    said.cancel()
                    self.shell.cancel(call.id)
                    return
                word = said.result()
                if isinstance(word, bytes):
                    if not streaming:
                        streaming = True
                        await _open_stream(send)
                    await send({"type": "http.response.body", "body": word, "more_body": True})
                elif streaming:
                    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
                    return
                else:
                    await _respond(send, word.status, *_payload(word))
                    return
        finally:
            gone.cancel()

    async def _body(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        total = 0
        while True:
            message = await receive()
            part = message.get("body", b"")
            total += len(part)
            if total > self.max_body:
                raise TooLarge(f"the request body is larger than {self.max_body} bytes")
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

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


def _bearer(headers: list[tuple[bytes, bytes]]) -> str | None:
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].decode("latin-1")
    return None


def _payload(reply: Reply) -> tuple[bytes, bytes | None]:
    if reply.media == "empty":
        return b"", None
    body = str(reply.body).encode() if reply.media == "text" else msgspec.json.encode(reply.body, enc_hook=str)
    return body, _MEDIA[reply.media]


async def _respond(send: Send, status: int, body: bytes, media: bytes | None) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    if media is not None:
        headers.append((b"content-type", media))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _open_stream(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _log(name: str, data: dict[str, Any]) -> None:
    """What SGLang's log says of a scheduler's exception (managers/scheduler.py:6372@0.5.23), without the traceback."""
    if name == "raise":
        print(f"Scheduler hit an exception: {data.get('type')}: {data.get('message')}", file=sys.stderr, flush=True)  # noqa: T201


def _die(died: Die) -> None:
    """As SGLang's SIGQUIT handler (managers/tokenizer_manager.py:4072@0.5.23)."""
    from fakes.fronts.caller import kill_this_process_tree

    text = "SIGQUIT received. It usually means one child failed."
    print(f"{text} rank {died.rank}: {died.error.type}: {died.error.message}", file=sys.stderr, flush=True)  # noqa: T201
    kill_this_process_tree()


def serve(
    front: HttpFront,
    host: str,
    port: int,
    *,
    log_level: str = "info",
    ready: Callable[[int], None] = lambda port: None,
    parent_fd: int | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or the engine's death. `ready(port)` is called when connects succeed.

    `parent_fd` is the reading end of a pipe: when its last writer is gone, so is this process. OSError when the address
    cannot be bound.
    """
    import uvicorn

    # With its protocol named, or asyncio leaves Nagle's algorithm on and every reply takes 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    config = uvicorn.Config(
        front, log_level=log_level, lifespan="off", timeout_keep_alive=5, timeout_graceful_shutdown=2, ws="none"
    )

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready(listener.getsockname()[1])

    async def main() -> None:
        front.start()
        if parent_fd is not None:
            asyncio.get_running_loop().add_reader(parent_fd, _orphaned, parent_fd)
        await Announcing(config).serve(sockets=[listener])

    asyncio.run(main())


def _orphaned(parent_fd: int) -> None:
    if not os.read(parent_fd, 1):
        from fakes.fronts.caller import kill_this_process_tree

        kill_this_process_tree()
