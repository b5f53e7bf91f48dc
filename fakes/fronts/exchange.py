"""One HTTP request as the core sees it, and the core's answer as its client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from fakes.engine.messages import INTERNAL_ERROR
from fakes.engine.protocol import Call, Reply
from fakes.fronts.app import Application, Message, Receive, Send, bearer

if TYPE_CHECKING:
    from fastapi import Request

_MEDIA = {"json": b"application/json", "text": b"text/plain; charset=utf-8"}


class Callee(Protocol):
    """What takes calls: a shell."""

    def call(self, call: Call, opened: Any) -> None:
        """Hand it over; the answer comes through `opened`."""
        ...

    def cancel(self, call_id: int) -> None:
        """The caller went away."""
        ...


class HttpCall:
    """One open request: what the core says of it, in order."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[Reply | bytes | None] = asyncio.Queue()

    def reply(self, reply: Reply) -> None:
        """The last word."""
        self.said.put_nowait(reply)

    def token(self, chunk: Any) -> None:
        """One server-sent event."""
        self.said.put_nowait(b"data: " + _json(chunk) + b"\n\n")

    def opened(self) -> None:
        """A stream has begun."""
        self.said.put_nowait(b"")

    def cut(self, why: str) -> None:
        """It ends without its end."""
        self.said.put_nowait(None)

    def drop(self, why: str) -> None:
        """The process is about to be killed; nothing is left to say."""


async def answer(request: Request, callee: Callee, new_id: Callable[[], int], max_body: int) -> Application:
    """Read the request and hand it to the core. A client that leaves before it has said all is no call."""
    from fastapi.responses import JSONResponse, Response
    from starlette.requests import ClientDisconnect

    try:
        body = await _body(request, max_body)
    except ClientDisconnect:
        return Response(status_code=400)  # to nobody
    if body is None:
        return JSONResponse({"detail": f"the request body is larger than {max_body} bytes"}, 413)
    headers = request.headers
    call = Call(
        id=new_id(),
        path=request.scope["path"],
        method=request.method,
        body=body or None,
        query=dict(parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)),
        bearer=bearer(request.scope["headers"]),
        content_type=headers.get("content-type", ""),
    )
    opened = HttpCall()
    callee.call(call, opened)
    return CoreAnswer(call.id, opened, callee)


async def _body(request: Request, limit: int) -> bytes | None:
    """All of it, or None when it is larger than `limit` bytes; uvicorn throws away what is not read."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        return None
    parts: list[bytes] = []
    total = 0
    async for part in request.stream():
        total += len(part)
        if total > limit:
            return None
        parts.append(part)
    return b"".join(parts)


class CoreAnswer:
    """Waits for the core's words and writes them; tells the core when the client goes away before the last."""

    def __init__(self, call_id: int, opened: HttpCall, callee: Callee) -> None:
        self._id, self._opened, self._callee = call_id, opened, callee

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """ASGI."""
        gone = asyncio.ensure_future(_disconnected(receive))
        streaming = False
        try:
            while True:
                said = asyncio.ensure_future(self._opened.said.get())
                await asyncio.wait({said, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not said.done():
                    said.cancel()
                    self._callee.cancel(self._id)
                    return
                word = said.result()
                if word is None:
                    return  # uvicorn closes a connection whose response is not complete
                if isinstance(word, bytes):
                    if not streaming:
                        streaming = True
                        await _open_stream(send)
                    if not word:
                        continue
                    await send({"type": "http.response.body", "body": word, "more_body": True})
                elif streaming:
                    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
                    return
                else:
                    await _respond(send, word)
                    return
        finally:
            gone.cancel()


async def _respond(send: Send, reply: Reply) -> None:
    body, media = b"", None
    if reply.media != "empty":
        media = _MEDIA[reply.media]
        try:
            body = str(reply.body).encode() if reply.media == "text" else _json(reply.body)
        except UnicodeEncodeError:  # half a surrogate pair, given back: orjson raises, too, where nothing catches it
            await _respond(send, Reply(id=reply.id, status=500, body=INTERNAL_ERROR.text, media="text"))
            return
    headers = [(b"content-length", str(len(body)).encode())]
    if media is not None:
        headers.append((b"content-type", media))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


async def _open_stream(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
