"""Servers started while scenarios wait: where cores are few, what a scenario leaves of them starts the next server."""

from __future__ import annotations

import threading
from collections.abc import Callable

from real_runs.server import Server, ServerError, ServerSpec

READY = 2  # servers that serve and that nobody has taken yet: 1.3 GB each, twice that at tp 2


class Reserve:
    """`count` servers of one spec, started one after the other from `begin` on; what is taken is not replaced.

    At most `READY` of them wait to be taken. `make(spec)` gives a server that was not started.
    """

    def __init__(self, make: Callable[[ServerSpec], Server], count: int) -> None:
        self._make, self._left = make, count
        self._spec: ServerSpec | None = None
        self._starting: Server | None = None
        self._over: list[tuple[Server, bool]] = []
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self, spec: ServerSpec) -> None:
        """Start them in the background. Only the first call does anything."""
        if self._thread is None and self._left:
            self._spec = spec
            self._thread = threading.Thread(target=self._work, args=(spec, self._left), daemon=True)
            self._thread.start()

    def take(self, spec: ServerSpec) -> Server | None:
        """The next one, waited for; None where none was begun, none is left, or its start failed."""
        if spec != self._spec or not self._left:
            return None
        self._left -= 1
        with self._changed:
            self._changed.wait_for(lambda: self._over)
            server, serves = self._over.pop(0)
            self._changed.notify_all()
        if serves:
            return server
        server.stop()
        return None

    def close(self) -> None:
        """End those that nobody took, wherever they are."""
        self._left = 0
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        while self._thread is not None and self._thread.is_alive():
            starting = self._starting
            if starting is not None:
                starting.give_up()
            self._thread.join(0.1)
        for server, _ in self._over:
            server.stop()
        self._over.clear()

    def _work(self, spec: ServerSpec, count: int) -> None:
        for _ in range(count):
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._over) < READY)
                if self._closed:
                    return
            server = self._make(spec)
            self._starting, serves = server, True
            try:
                server.start()
            except (ServerError, OSError):
                serves = False  # whoever needs it starts one and is told why that fails
            with self._changed:
                self._starting = None
                self._over.append((server, serves))
                self._changed.notify_all()
