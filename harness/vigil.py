"""What a worker tells its parent without a call: which client's code it is in, and until when that may take.

Shared memory, so that it is there when the worker is dead, or deaf in C code that holds the interpreter's lock.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from time import monotonic

WIDTH = 400  # bytes of what is told


class Vigil:
    """A place for each worker, and its only writer: made by the parent, handed to each worker as it starts.

    A place holds the worker's process id, the end of the client's time in seconds of `time.monotonic` (one clock for
    all processes; 0 where no client is at work), what the client was last at, and the worker's last words.
    """

    def __init__(self, context: BaseContext, places: int) -> None:
        self._pids = context.RawArray("q", places)
        self._until = context.RawArray("d", places)
        self._at = [context.RawArray("c", WIDTH) for _ in range(places)]
        self._last = [context.RawArray("c", WIDTH) for _ in range(places)]
        self._mine = -1
        self._scenario = ""

    # -- in the worker ------------------------------------------------------------------------------------------

    def take(self, place: int) -> None:
        """From now on this process writes there."""
        self._mine = place
        self._until[place], self._at[place].value, self._last[place].value = 0.0, b"", b""
        self._pids[place] = os.getpid()

    def begin(self, scenario: str) -> None:
        """What follows belongs to this scenario."""
        self._scenario = scenario
        self._note(self._at, "")

    @contextmanager
    def over(self, who: str, seconds: float) -> Iterator[None]:
        """The client's code runs in the block, for `seconds` of real time at most; infinity is no limit."""
        before = self._until[self._mine]
        self._note(self._at, who)
        self._until[self._mine] = monotonic() + seconds
        try:
            yield
        finally:
            self._until[self._mine] = before

    def last_words(self, text: str) -> None:
        """Why this process ends now."""
        self._note(self._last, text)

    def _note(self, where: list[object], text: str) -> None:
        told = ": ".join(filter(None, (self._scenario and f"scenario {self._scenario}", text)))
        where[self._mine].value = told.encode(errors="replace")[: WIDTH - 1]  # type: ignore[attr-defined]  # of a char array

    # -- in the parent ------------------------------------------------------------------------------------------

    def late(self, place: int) -> str:
        """What the client in this place is at that was to be over by now; "" where it is not late."""
        return self._text(self._at, place) if 0 < self._until[place] < monotonic() else ""

    def said(self, place: int) -> str:
        """The last words of the worker that has this place; "" for none."""
        return self._text(self._last, place)

    def at(self, place: int) -> str:
        """What the client was last at in the worker that has this place; "" before it was asked for anything."""
        return self._text(self._at, place)

    def told_of(self, pid: int, exit_code: int | None) -> str:
        """Why the worker `pid` may have ended, in one line."""
        number = next((n for n, known in enumerate(self._pids) if known == pid), None)
        if number is None:
            return f"a worker process ended with exit code {exit_code} before it began"
        last, at = self._text(self._last, number), self._text(self._at, number)
        if last:
            return last
        where = f" {'in' if self._until[number] else 'after'} {at}" if at else ""
        if exit_code is None:
            return f"a worker process closed its pipe{where}"
        return f"a worker process ended with exit code {exit_code}{where}"

    @staticmethod
    def _text(where: list[object], number: int) -> str:
        return bytes(where[number].value).decode(errors="replace")  # type: ignore[attr-defined]  # of a char array


NO_LIMIT = math.inf
