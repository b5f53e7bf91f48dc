"""Bytes through a proxy: request and answer are passed on piece by piece, a keeper sees them as they pass.

The last piece of a request is held back until the keeper has written it down, and so is the last piece of an answer:
what a history says happened before something else did.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from harness.exchange import new_client, passed_on
from harness.proxy import door_config
from real_runs.recording.keeper import Keeper, Visit

if TYPE_CHECKING:
    import httpx
    import uvicorn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
LAST_EVENT = b"[DONE]\n\n"
SMALL = 65536  # bytes; a larger request is written down beside the event loop


class ClientGone(Exception):
    """It left before it had said all."""


class Passing:
    """An ASGI application in front of one upstream."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One exchange. What the server does to a connection, the client sees."""
        if scope["type"] != "http":
            raise RuntimeError(f"this proxy speaks HTTP only, not {scope['type']}")
        if self._client is None:
            self._client = new_client()
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        visit = self._keeper.arrives(scope["method"], target)
        exchange = _Exchange(self._client, self._keeper.upstream, visit, scope, receive, send)
        await exchange.run(target)

    async def close(self) -> None:
        """Close what is left of connections to the upstream."""
        if self._client is not None:
            await self._client.aclose()


class _Exchange:
    def __init__(
        self, client: httpx.AsyncClient, upstream: str, visit: Visit, scope: Message, receive: Receive, send: Send
    ) -> None:
        self._client, self._upstream, self._visit = client, upstream, visit
        self._scope, self._receive, self._send = scope, receive, send
        self._gone: asyncio.Task[None] | None = None
        self._started = False

    async def run(self, target: bytes) -> None:
        import httpx

        work = asyncio.ensure_future(self._pass(target))
        self._work = work
        try:
            await work
        except (asyncio.CancelledError, ClientGone):
            self._visit.settle("timeout")
            if not work.cancelled() and not work.done():
                raise
        except httpx.ConnectError:
            await self._cut("refused")
        except httpx.HTTPError:
            await self._cut("dropped")
        finally:
            if self._gone is not None:
                self._gone.cancel()

    async def _pass(self, target: bytes) -> None:
        import httpx

        url = httpx.URL(self._upstream)
        headers = tuple((bytes(name).lower(), bytes(value)) for name, value in self._scope["headers"])
        passed = [(b"host", url.netloc), *passed_on(headers, b"host")]
        request = httpx.Request(
            self._scope["method"],
            url.copy_with(raw_path=url.raw_path.rstrip(b"/") + target),
            headers=passed,
            content=await self._content(headers),
        )
        response = await self._client.send(request, stream=True)
        try:
            await self._answer(response)
        finally:
            await response.aclose()

    async def _content(self, headers: tuple[tuple[bytes, bytes], ...]) -> bytes | AsyncIterator[bytes] | None:
        """A body that came in one piece, or the pieces as they come; None where there is none."""
        first = await self._piece()
        if first["more_body"]:
            return self._pieces(first["body"])
        self._visit.asked(first["body"])
        await self._admit(len(first["body"]))
        return first["body"] if first["body"] or any(name == b"content-length" for name, _ in headers) else None

    async def _pieces(self, first: bytes) -> AsyncIterator[bytes]:
        self._visit.asked(first)
        held, size, more = first, len(first), True
        while more:
            message = await self._piece()
            more = message["more_body"]
            self._visit.asked(message["body"])
            size += len(message["body"])
            if held and message["body"]:
                yield held
                held = b""
            held = held or message["body"]
        await self._admit(size)
        if held:
            yield held

    async def _piece(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return {"body": message.get("body", b""), "more_body": message.get("more_body", False)}

    async def _admit(self, size: int) -> None:
        if size > SMALL:
            await asyncio.to_thread(self._visit.admit)
        else:
            self._visit.admit()
        self._gone = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._work.cancel()

    async def _answer(self, response: httpx.Response) -> None:
        headers = tuple((name.lower(), value) for name, value in response.headers.raw)
        media = response.headers.get("content-type", "")
        events = media.startswith("text/event-stream")
        self._visit.head(response.status_code, media)
        start = {"type": "http.response.start", "status": response.status_code, "headers": passed_on(headers)}
        held = b""
        async for piece in response.aiter_raw():
            self._visit.answered(piece)
            held += piece
            if events and not piece.endswith(LAST_EVENT):
                held = await self._forward(start, held, b"")
            elif len(held) > len(piece):
                held = await self._forward(start, held[: -len(piece)], piece)
        self._visit.settle("reply")
        if not self._started:
            await self._send(start)
        self._started = True
        await self._send({"type": "http.response.body", "body": held})

    async def _forward(self, start: Message, body: bytes, kept: bytes) -> bytes:
        if self._scope["state"]["transport"].is_closing():
            raise ClientGone  # what is written to it is lost with a warning each
        if not self._started:
            self._started = True
            await self._send(start)
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        return kept

    async def _cut(self, ending: Any) -> None:
        self._visit.settle(ending)
        transport: asyncio.Transport = self._scope["state"]["transport"]
        if ending == "refused":
            linger = struct.pack("ii", 1, 0)  # a reset
            with contextlib.suppress(OSError):
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        transport.abort()
        if self._gone is not None:
            await asyncio.wait({self._gone})


def server_of(application: Passing, host: str, port: int) -> tuple[uvicorn.Server, socket.socket]:
    """A server that listens already, and its socket. OSError where the address cannot be bound."""
    import uvicorn

    # With its protocol named, or asyncio leaves Nagle's algorithm on and every reply takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return uvicorn.Server(door_config(application)), listener
