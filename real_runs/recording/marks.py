"""Where refits begin and end, read off the control calls: nobody tells a proxy.

A refit begins with a call that only a refit makes. It ends when every engine was paused in it and each of them was
continued; of a client that pauses none, or not all, when the next refit begins after a silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fakes.outcome import Outcome

NOT_JUDGED = ("CACHE-1", "ERR-1", "ERR-2", "SESS-3", "COLL-7")
"""Rules about what the client said of a refit, which passes no proxy."""
HELD_ON_PURPOSE = ("PAUSE-1",)
"""As well where the policy lets a client keep an engine paused after a failure, and say so."""
UPDATES = frozenset(f"update_weights_from_{way}" for way in ("tensor", "distributed", "disk", "ipc"))
OPENING = frozenset({"pause_generation", "begin_weight_update", *UPDATES})
INSIDE = OPENING | {
    *("continue_generation", "end_weight_update", "flush_cache", "update_weight_version"),
    *("release_memory_occupation", "resume_memory_occupation"),
}
SILENCE_S = 2.0
DEADLINE_S = 3600.0
"""A client's own deadline is not known to a proxy: none is held against it."""

Mark = Callable[[Mapping[str, Any]], None]


class RefitMarks:
    """Told of every control call before it is recorded, and of its end after; writes facts "refit" by `mark`."""

    def __init__(self, engines: int, mark: Mark, silence_s: float = SILENCE_S) -> None:
        self._engines, self._mark, self._silence = engines, mark, silence_s
        self._index = -1
        self._open = False
        self._last = 0.0
        self._under_way = 0
        self._failed: dict[tuple[str, str], str] = {}
        self._paused: set[str] = set()
        self._ever_paused: set[str] = set()

    def before(self, op: str, now: float) -> None:
        """A call leaves its client."""
        if op not in INSIDE:
            return
        if self._open and op in OPENING and not self._under_way and now - self._last > self._silence:
            self._end()
        if not self._open and op in OPENING:
            self._index += 1
            self._open = True
            self._failed.clear()
            self._paused.clear()
            self._ever_paused.clear()
            self._mark({"phase": "start", **self._about(), "deadline_s": DEADLINE_S, "names": []})
        self._under_way += 1

    def after(self, engine: str, op: str, seen: Outcome, now: float) -> None:
        """It has ended for its client."""
        if op not in INSIDE:
            return
        self._under_way -= 1
        self._last = now
        if not self._open:
            return
        if op in (*UPDATES, "begin_weight_update", "end_weight_update"):
            if seen.ok:
                self._failed.pop((engine, op), None)  # it was asked again
            else:
                self._failed[engine, op] = f"{op} on {engine}: {seen.status or seen.ending}"
        if op == "pause_generation" and seen.ok:
            self._paused.add(engine)
            self._ever_paused.add(engine)
        if op == "continue_generation" and seen.ok:
            self._paused.discard(engine)
            if not self._paused and not self._under_way and len(self._ever_paused) == self._engines:
                self._end()

    def close(self) -> None:
        """Nothing follows."""
        if self._open:
            self._end()

    def _end(self) -> None:
        self._open = False
        why = next(iter(self._failed.values()), "left paused" if self._paused else "")
        ok = not why
        told = {"ok": ok, "error_type": "" if ok else "Unknown", "error": why, "reported": None}
        self._mark({"phase": "end", **self._about(), **told})

    def _about(self) -> dict[str, Any]:
        return {"index": self._index, "version": "", "seed": None, "inferred": True}
