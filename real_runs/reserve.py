"""Servers started while scenarios wait: where cores are few, what a scenario leaves of them starts the next server."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from real_runs.server import Server, ServerError, ServerSpec


class Reserve:
    """`count` servers of one spec, started one after the other from `begin` on; what is taken is not replaced.

    `make(spec)` gives a server that was not started.
    """

    def __init__(self, make: Callable[[ServerSpec], Server], count: int) -> None:
        self._make, self._left = make, count
        self._spec: ServerSpec | None = None
        self._servers: list[Server] = []
        self._over: queue.SimpleQueue[tuple[Server, bool]] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, spec: ServerSpec) -> None:
        """Start them in the background. Only the first call does anything."""
        if self._thread is None and self._left:
            self._spec = spec
            self._servers = [self._make(spec) for _ in range(self._left)]
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def take(self, spec: ServerSpec) -> Server | None:
        """The next one, waited for; None where none was begun, none is left, or its start failed."""
        if spec != self._spec or not self._left:
            return None
        self._left -= 1
        server, serves = self._over.get()
        if not serves:
            return None
        self._servers.remove(server)
        return server

    def close(self) -> None:
        """End those that nobody took, wherever they are."""
        self._closed.set()
        while self._thread is not None and self._thread.is_alive():
            for server in self._servers:
                server.give_up()
            self._thread.join(0.1)
        for server in self._servers:
            server.stop()
        self._servers, self._left = [], 0

    def _work(self) -> None:
        for server in list(self._servers):
            if self._closed.is_set():
                return
            serves = True
            try:
                server.start()
            except (ServerError, OSError):
                serves = False  # whoever needs it starts one and is told why that fails
            self._over.put((server, serves))
