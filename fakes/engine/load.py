"""/get_load up to 0.5.20: how much a scheduler has to do.

0.5.12 asks its scheduler. From 0.5.17 the HTTP process reads the last snapshot that the scheduler published, after a
step or when it ran out of work (managers/scheduler.py:4602,4793@0.5.20): a paused, blocked or dead scheduler publishes
nothing, and what was last true is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakes.engine.batching import Batch


class Load:
    """What one scheduler publishes of its batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.snapshot = self.now()

    def now(self, _obj: Any = None) -> dict[str, int]:
        """Counts of requests and tokens (managers/scheduler_components/load_inquirer.py:97@0.5.20).

        A prompt that two requests share counts twice, though its KV is there once.
        """
        batch = self._batch
        used = sum(len(req.kv) for req in batch.running if req.kv is not None)
        pending = sum(len(req.tokens) for req in batch.waiting)
        return {"running": len(batch.running), "waiting": len(batch.waiting), "used": used, "total": used + pending}

    def publish(self) -> None:
        """This is the state that is read from now on."""
        self.snapshot = self.now()


def answer(load: dict[str, int], now: float) -> list[dict[str, Any]]:
    """The body, one entry per data-parallel rank (entrypoints/http_server.py:662@0.5.12.post1)."""
    return [
        {
            "dp_rank": 0,
            "num_reqs": load["running"] + load["waiting"],
            "num_waiting_reqs": load["waiting"],
            "num_tokens": load["total"],
            "num_pending_tokens": load["total"] - load["used"],
            "ts_tic": now,
        }
    ]
