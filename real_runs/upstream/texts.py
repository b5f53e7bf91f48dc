"""A door before an engine without a tokenizer, for tests that speak text: a letter is a token, both ways.

Only `/generate` with a text is touched; everything else goes through as it is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

TIMEOUT_S = 120.0


def tokens(text: str) -> list[int]:
    """A token a letter; never one that ends a text."""
    return [3 + ord(letter) % 250 for letter in text]


def letters(ids: list[int]) -> str:
    """A letter a token."""
    return "".join(chr(33 + token % 90) for token in ids)


@contextmanager
def door(url: str) -> Iterator[str]:
    """Its URL while it is open."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # http.server's name
            self._pass(None)

        def do_POST(self) -> None:
            self._pass(self.rfile.read(int(self.headers.get("content-length", 0))))

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        def _pass(self, data: bytes | None) -> None:
            spoken, data = _in(self.path, data)
            asked = Request(url + self.path, data, dict(_forwarded(self.headers)), method=self.command)
            try:
                with urlopen(asked, timeout=TIMEOUT_S) as reply:
                    status, kind, content = reply.status, reply.headers.get_content_type(), reply.read()
            except HTTPError as error:
                status, kind, content = error.code, error.headers.get_content_type(), error.read()
            content = _out(content) if spoken and status == 200 else content
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def _forwarded(headers: Any) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in headers.items() if name.lower() in ("content-type", "authorization"))


def _in(path: str, data: bytes | None) -> tuple[bool, bytes | None]:
    if path != "/generate" or not data:
        return False, data
    body = json.loads(data)
    if not isinstance(body.get("text"), str):
        return False, data
    return True, json.dumps({**body, "input_ids": tokens(body.pop("text"))} | {"text": None}).encode()


def _out(content: bytes) -> bytes:
    body = json.loads(content)
    return json.dumps({"text": letters(body["output_ids"]), **body}).encode() if "output_ids" in body else content
