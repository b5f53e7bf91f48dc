"""A plain HTTP client that tells the four endings of a call apart and reads bodies as the server sent them."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from fakes.outcome import Outcome


def decode(content_type: str, data: bytes) -> Any:
    """The body as `Outcome.body` has it: JSON, text, None when empty; an event stream as {"stream": [events]}."""
    if not data:
        return None
    text = data.decode("utf-8", errors="replace")
    if content_type.startswith("text/event-stream"):
        events = [line[len("data: ") :] for line in text.splitlines() if line.startswith("data: ")]
        return {"stream": [event if event == "[DONE]" else json.loads(event) for event in events]}
    if content_type.startswith("application/json"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


class Background:
    """A call in a thread of its own."""

    def __init__(self, run: Any) -> None:
        self._outcome: Outcome | None = None
        self._thread = threading.Thread(target=self._work, args=(run,), daemon=True)
        self._thread.start()

    def _work(self, run: Any) -> None:
        self._outcome = run()

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return self._outcome is not None

    def result(self, timeout_s: float) -> Outcome:
        """The outcome; ending "timeout" when there is none within `timeout_s` seconds."""
        self._thread.join(timeout_s)
        return self._outcome or Outcome(ending="timeout", error=f"not done after {timeout_s} s", elapsed_s=timeout_s)


class Exchange:
    """One call on a connection of its own, which another thread may close."""

    def __init__(
        self,
        address: tuple[str, int],
        method: str,
        target: str,
        data: bytes | None,
        headers: dict[str, str],
        timeout_s: float,
    ) -> None:
        self._request = (method, target, data, headers)
        self._connection = http.client.HTTPConnection(*address, timeout=timeout_s)
        self.cancelled = False

    def cancel(self) -> None:
        """Close the connection under the call."""
        self.cancelled = True
        socket_ = self._connection.sock
        if socket_ is not None:
            with contextlib.suppress(OSError):
                socket_.shutdown(socket.SHUT_RDWR)  # close alone would not wake a thread that reads

    def run(self) -> Outcome:
        """Do it and wait. Never raises for what the server does."""
        method, target, data, headers = self._request
        connection = self._connection
        began = time.monotonic()
        try:
            connection.request(method, target, body=data, headers=headers)
            response = connection.getresponse()
            content = response.read()
        except ConnectionRefusedError as error:
            return _no_reply("refused", error, began)
        except TimeoutError as error:
            return _no_reply("timeout", error, began)
        except (OSError, http.client.HTTPException) as error:
            return _no_reply("dropped", error, began)
        finally:
            connection.close()
        return Outcome(
            ending="reply",
            status=response.status,
            body=decode(response.headers.get("content-type", ""), content),
            elapsed_s=time.monotonic() - began,
        )


class HttpClient:
    """Calls to a server on loopback, a connection each."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.host, self.port = host, port

    def exchange(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        query: Mapping[str, str] | None = None,
        bearer: str | None = None,
        timeout_s: float = 60.0,
    ) -> Exchange:
        """A call that is ready to run. `body` is sent as JSON unless None; `raw` are the exact bytes instead."""
        data = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        headers = {"Content-Type": "application/json"} if data is not None else {}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        target = "/" + path.lstrip("/") + ("?" + urlencode(query) if query else "")
        return Exchange((self.host, self.port), method, target, data, headers, timeout_s)

    def request(self, method: str, path: str, body: Any = None, **options: Any) -> Outcome:
        """The same, done and waited for."""
        return self.exchange(method, path, body, **options).run()

    def start(self, method: str, path: str, body: Any = None, **options: Any) -> Background:
        """The same in the background."""
        return Background(self.exchange(method, path, body, **options).run)


def _no_reply(ending: Any, error: BaseException, began: float) -> Outcome:
    return Outcome(ending=ending, error=f"{type(error).__name__}: {error}", elapsed_s=time.monotonic() - began)
