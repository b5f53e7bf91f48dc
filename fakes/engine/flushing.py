"""A flush that waits for the engine to be idle (`/flush_cache?timeout=T`).

Its idle test is the strict one in every version: a paused engine with a queue never passes it, although a flush
without a
timeout would (managers/scheduler_components/flush_wrapper.py@0.5.23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakes.engine import messages as m

if TYPE_CHECKING:
    from fakes.engine.scheduler import Scheduler


class DeferredFlush:
    """At most one waiting flush. `deadline` is when it gives up, virtual seconds, or None."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._s = scheduler
        self.deadline: float | None = None

    def handle(self, obj: dict[str, Any]) -> dict[str, Any] | None:
        """The reply, or None when it has to wait."""
        if self.deadline is not None:
            return {"success": False, "message": m.FLUSH_BUSY.text}
        timeout = float(obj.get("timeout_s") or 0.0)
        if timeout <= 0.0 or self._s.batch.is_idle():
            return {"success": self._s.flush(), "message": ""}
        self.deadline = self._s.now + timeout
        return None

    def check(self) -> None:
        """Flush if the engine became idle, give up if it is too late."""
        if self.deadline is None:
            return
        if self._s.batch.is_idle():
            self.deadline = None
            self._s.send("flush_cache", {"success": self._s.flush(), "message": ""})
        elif self._s.now >= self.deadline:
            self.deadline = None
            self._s.send("flush_cache", {"success": False, "message": m.FLUSH_TIMEOUT.text})
