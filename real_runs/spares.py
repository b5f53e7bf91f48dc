"""Servers started ahead of their need: where a start takes a minute and there are many cores, deaths cost little."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from real_runs.server import Server, ServerError, ServerSpec


class Spares:
    """Keeps `count` servers starting or ready: of the first spec at once, of others from their second start on.

    `make(spec)` gives a server that was not started.
    """

    def __init__(self, make: Callable[[ServerSpec], Server], count: int) -> None:
        self._make, self._count = make, count
        self._ahead: dict[ServerSpec, set[_Start]] = {}
        self._over: dict[ServerSpec, queue.SimpleQueue[_Start]] = {}

    def take(self, spec: ServerSpec) -> Server | None:
        """The first that serves, waited for; None where none are kept ahead. ServerError of a start that failed."""
        known = spec in self._ahead or not self._ahead
        ahead, over = self._ahead.setdefault(spec, set()), self._over.setdefault(spec, queue.SimpleQueue())
        if self._count == 0 or not known:
            return None
        while len(ahead) <= self._count:
            ahead.add(_Start(self._make(spec), over))
        started = over.get()
        ahead.remove(started)
        return started.result()

    def close(self) -> None:
        """End them all."""
        for ahead in self._ahead.values():
            for start in ahead:
                start.end()
            ahead.clear()


class _Start:
    """One start, in a thread of its own; put into `over` at its end."""

    def __init__(self, server: Server, over: queue.SimpleQueue[_Start]) -> None:
        self._server, self._over = server, over
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._server.start()
        except (ServerError, OSError) as error:
            self._error = error
        finally:
            self._over.put(self)

    def result(self) -> Server:
        """The server, or what its start raised."""
        if self._error is not None:
            raise self._error
        return self._server

    def end(self) -> None:
        """Stop it, wherever it is."""
        while self._thread.is_alive():
            self._server.give_up()
            self._thread.join(0.1)
        self._server.stop()
