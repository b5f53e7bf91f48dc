"""One request on its way to a server and back, as a keeper decides: bytes stay bytes, streams go on as they come."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import httpx

Headers = tuple[tuple[bytes, bytes], ...]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SMALL = 65536  # bytes; larger requests are read by the keeper beside the event loop
_HOP = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
_LAST_EVENT = b"[DONE]\n\n"


@dataclass(frozen=True)
class Asked:
    """One request as it came. `target` is the raw path with its query; header names are lower case."""

    method: str
    target: bytes
    headers: Headers
    body: bytes


@dataclass(frozen=True)
class Answer:
    """One response as it came; `body` may be encoded as its headers say."""

    status: int
    headers: Headers
    body: bytes


Ended = Answer | Literal["dropped", "refused", "timeout"]


class Visit(Protocol):
    """One request that a keeper has admitted. `harness.gate.Passage` says what its questions mean; seconds are real."""

    @property
    def deliver(self) -> bool:
        """Whether the server sees it."""
        ...

    @property
    def kills(self) -> bool:
        """Whether the server dies of it."""
        ...

    @property
    def hangs(self) -> bool:
        """Whether it is never answered, until its client goes away."""
        ...

    @property
    def plain(self) -> bool:
        """Whether the answer passes as it comes, so that a stream may begin before its end is known."""
        ...

    def delay(self, when: str) -> float:
        """Seconds to hold it back before, or its answer after."""
        ...

    def settle(self, ended: Ended) -> Ended:
        """It ends: what the client is told. "timeout" is a client that went away, or was never to be answered."""
        ...


class Keeper(Protocol):
    """Who decides at one door."""

    def server(self) -> str:
        """The url of the server, without a last slash; asked for every request."""
        ...

    def admit(self, asked: Asked) -> Visit:
        """A request has come in, whole."""
        ...

    def kill(self) -> None:
        """End the server's process tree at once. May block."""
        ...


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        keeper: Keeper,
        client: httpx.AsyncClient,
        asked: Asked,
        gone: asyncio.Future[None],
        send: Send,
        transport: asyncio.Transport,
        keep: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        self._keeper, self._client, self._asked = keeper, client, asked
        self._gone, self._send, self._transport, self._keep = gone, send, transport, keep
        self._streaming = False
        self._rest = b""

    async def run(self) -> None:
        """From the request to the last byte of the answer, or to the end of the connection."""
        if len(self._asked.body) > SMALL:
            visit = await asyncio.to_thread(self._keeper.admit, self._asked)
        else:
            visit = self._keeper.admit(self._asked)
        seen = visit.settle(await self._ended(visit))
        if isinstance(seen, Answer):
            await self._write(seen)
        else:
            await self._cut(seen)

    async def _ended(self, visit: Visit) -> Ended:
        if not visit.deliver:
            if visit.kills:
                await asyncio.to_thread(self._keeper.kill)
            if visit.hangs:
                await asyncio.wait({self._gone})
            return "timeout"
        held = visit.delay("before")
        if held:
            until = asyncio.get_running_loop().time() + held
            if not await self._unless_gone(asyncio.sleep(held, True)):
                self._keep(asyncio.ensure_future(self._late(until)))
                return "timeout"
        ended: Ended = await self._unless_gone(self._ask(visit.plain)) or "timeout"
        if visit.kills:
            await asyncio.to_thread(self._keeper.kill)
        if visit.hangs:
            await asyncio.wait({self._gone})
        held = visit.delay("after")
        if held and not await self._unless_gone(asyncio.sleep(held, True)):
            return "timeout"
        return ended

    async def _unless_gone(self, work: Any) -> Any:
        """Its result, or None when the client goes away first: then the work is cancelled."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._gone}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})  # the server's connection is closed before anyone is told

    async def _late(self, until: float) -> None:
        """It was under way when its client gave up: it still arrives, and its answer reaches nobody."""
        await asyncio.sleep(until - asyncio.get_running_loop().time())
        await self._ask(False)

    async def _ask(self, stream: bool) -> Ended:
        import httpx

        asked = self._asked
        url = httpx.URL(self._keeper.server())
        headers = [(b"host", url.netloc), *passed_on(asked.headers, b"host", b"content-length")]
        target = url.raw_path.rstrip(b"/") + asked.target
        request = httpx.Request(asked.method, url.copy_with(raw_path=target), headers=headers, content=asked.body)
        try:
            response = await self._client.send(request, stream=True)
            try:
                head = tuple((name.lower(), value) for name, value in response.headers.raw)
                return Answer(response.status_code, head, await self._body(response, head, stream))
            finally:
                await response.aclose()
        except httpx.ConnectError:
            return "refused"
        except httpx.HTTPError:
            return "dropped"

    async def _body(self, response: httpx.Response, headers: Headers, stream: bool) -> bytes:
        events = stream and _value(headers, b"content-type").startswith(b"text/event-stream")
        parts: list[bytes] = []
        async for chunk in response.aiter_raw():
            parts.append(chunk)
            if events:
                if not self._streaming:
                    await self._start(response.status_code, passed_on(headers, b"content-length"))
                if chunk.endswith(_LAST_EVENT):  # its client acts on that: the keeper has to know first
                    self._rest += chunk
                else:
                    part, self._rest = self._rest + chunk, b""
                    await self._send({"type": "http.response.body", "body": part, "more_body": True})
        return b"".join(parts)

    async def _start(self, status: int, headers: Headers) -> None:
        self._streaming = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, answer: Answer) -> None:
        if self._streaming:
            await self._send({"type": "http.response.body", "body": self._rest})
            return
        headers = answer.headers
        if self._asked.method != "HEAD":
            length = str(len(answer.body)).encode()
            headers = (*((n, v) for n, v in headers if n != b"content-length"), (b"content-length", length))
        await self._start(answer.status, passed_on(headers))
        await self._send({"type": "http.response.body", "body": answer.body})

    async def _cut(self, ended: str) -> None:
        if ended == "refused":
            linger = struct.pack("ii", 1, 0)  # a reset
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._transport.abort()
        await asyncio.wait({self._gone})


def new_client() -> httpx.AsyncClient:
    """A client for `Exchange`."""
    import httpx

    # No connection is kept: a server that died must be refused, not found dead on an old connection.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=None, limits=limits, trust_env=False, verify=False, follow_redirects=False)


def _value(headers: Headers, wanted: bytes) -> bytes:
    return next((value for name, value in headers if name == wanted), b"")


def passed_on(headers: Headers, *less: bytes) -> Headers:
    """Without what belongs to one connection only."""
    named = {part.strip().lower() for part in _value(headers, b"connection").split(b",")}
    return tuple((n, v) for n, v in headers if n not in _HOP and n not in named and n not in less)
