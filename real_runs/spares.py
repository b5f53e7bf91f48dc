"""Servers started ahead of their need: where a start takes a minute and there are many cores, deaths cost little."""

from __future__ import annotations

import threading
from collections.abc import Callable

from real_runs.server import Server, ServerError, ServerSpec


class Spares:
    """Keeps `count` servers starting or ready: of the first spec at once, of others from their second start on.

    `make(spec)` gives a server that was not started.
    """

    def __init__(self, make: Callable[[ServerSpec], Server], count: int) -> None:
        self._make, self._count = make, count
        self._ahead: dict[ServerSpec, list[_Start]] = {}
        self._seen: set[ServerSpec] = set()

    def take(self, spec: ServerSpec) -> Server | None:
        """One that serves, waited for; None where none are kept ahead. ServerError of a start that failed."""
        known = spec in self._seen or not self._seen
        self._seen.add(spec)
        if self._count == 0 or not known:
            return None
        ahead = self._ahead.setdefault(spec, [])
        wanted = self._count + 1 if not ahead else self._count
        ahead += [_Start(self._make(spec)) for _ in range(wanted - len(ahead))]
        started = min(ahead, key=lambda start: not start.done)
        ahead.remove(started)
        ahead.append(_Start(self._make(spec)))
        return started.result()

    def close(self) -> None:
        """End them all."""
        for ahead in self._ahead.values():
            for start in ahead:
                start.end()
        self._ahead.clear()


class _Start:
    """One start, in a thread of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._error: ServerError | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._server.start()
        except ServerError as error:
            self._error = error

    @property
    def done(self) -> bool:
        """Whether it serves, or failed."""
        return not self._thread.is_alive()

    def result(self) -> Server:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._server

    def end(self) -> None:
        """Stop it, wherever it is."""
        while self._thread.is_alive():
            self._server.give_up()
            self._thread.join(0.1)
        self._server.stop()
