"""HTTP as a lane needs it: calls on one event loop beside the lane, their endings told apart, each to be cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING, Any, Protocol

from fakes.outcome import Outcome
from harness.passage import Request

if TYPE_CHECKING:
    import httpx


class Wire:
    """An event loop in a thread of its own. `close` ends it and drops every open call."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._thread.start()
        self._client = asyncio.run_coroutine_threadsafe(_client(), self._loop).result()

    def send(self, url: str, request: Request, now: Callable[[], float]) -> Future[Outcome]:
        """Send one request on a connection of its own. The future never fails: every ending is an outcome."""
        return asyncio.run_coroutine_threadsafe(self._send(url, request, now), self._loop)

    def close(self) -> None:
        """End every call and the thread."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10.0)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10.0)
            self._loop.close()

    async def _send(self, url: str, request: Request, now: Callable[[], float]) -> Outcome:
        import httpx

        began = now()
        try:
            response = await self._client.request(
                request.method,
                f"{url}/{request.op}",
                params=request.query or None,
                **_content(request),
            )
        except httpx.ConnectError as error:
            return Outcome(ending="refused", error=_text(error), elapsed_s=now() - began)
        except httpx.HTTPError as error:
            return Outcome(ending="dropped", error=_text(error), elapsed_s=now() - began)
        return Outcome(ending="reply", status=response.status_code, body=_body(response), elapsed_s=now() - began)

    async def _stop(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.aclose()


async def _client() -> httpx.AsyncClient:
    """Made before the lane's clock starts: the import alone takes a while."""
    import httpx

    # No connection is kept: a server that died must be refused, not found dead on an old connection.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=None, limits=limits, trust_env=False, verify=False)  # loopback, no TLS


class Process(Protocol):
    """One running server."""

    url: str

    def kill(self) -> None:
        """kill -9 of its process group."""
        ...


class HttpLink:
    """`harness.passage.Link` to one server, on a clock of `scale` real seconds per second of the lane.

    A restart puts the next process in the place of `process`.
    """

    def __init__(self, wire: Wire, process: Process, now: Callable[[], float], scale: float) -> None:
        self.process = process
        self._wire = wire
        self._now = now
        self._scale = scale

    def submit(self, request: Request, on_done: Callable[[Outcome], None] | None = None) -> HttpReply:
        """Send it; `on_done` is called on the wire's thread."""
        return HttpReply(self._wire.send(self.process.url, request, self._now), self._scale, on_done)

    def kill(self) -> None:
        """kill -9 of the server's process group."""
        self.process.kill()

    def now(self) -> float:
        """Seconds of the lane's clock."""
        return self._now()

    def sleep(self, seconds: float) -> None:
        """Seconds of the lane's clock."""
        time.sleep(max(0.0, seconds * self._scale))

    def spawn(self, work: Callable[[], None]) -> Callable[[], None]:
        """A thread; the returned function joins it and raises what it raised."""
        done: Future[None] = Future()

        def body() -> None:
            try:
                work()
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=body, daemon=True).start()
        return done.result


class HttpReply:
    """`harness.passage.Reply` over a future."""

    def __init__(self, future: Future[Outcome], scale: float, on_done: Callable[[Outcome], None] | None) -> None:
        self._future = future
        self._scale = scale
        if on_done is not None:
            future.add_done_callback(lambda done: None if done.cancelled() else on_done(done.result()))

    @property
    def done(self) -> bool:
        """Whether its end is known."""
        return self._future.done()

    def wait(self, timeout_s: float) -> Outcome:
        """Block at most `timeout_s` of the lane's clock."""
        try:
            return self._future.result(timeout_s * self._scale)
        except (NotYet, CancelledError):
            return Outcome(ending="timeout", error=f"no answer within {timeout_s:g} s", elapsed_s=timeout_s)

    def cancel(self) -> None:
        """Close the connection: the server sees that its client is gone."""
        self._future.cancel()


def _content(request: Request) -> dict[str, Any]:
    headers = {} if request.bearer is None else {"Authorization": f"Bearer {request.bearer}"}
    if isinstance(request.body, bytes):
        return {"content": request.body, "headers": {"Content-Type": "application/json", **headers}}
    return {"headers": headers} if request.body is None else {"json": request.body, "headers": headers}


def _body(response: httpx.Response) -> Any:
    if not response.content:
        return None
    kind = response.headers.get("content-type", "")
    if kind.startswith("application/json"):
        try:
            return response.json()
        except ValueError:
            return response.text
    return response.text


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
