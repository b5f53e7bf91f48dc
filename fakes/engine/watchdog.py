"""The scheduler's hard watchdog: a batch that is current while no forward pass ends kills the engine.

Two things stop the passes: an in-place pause over a live batch, and a handler that blocks the scheduler thread (a
rendezvous, a broadcast) while a batch was current. SGLang looks every half timeout, so death comes one and a half
timeouts after the last pass at the latest, which is when it comes here (utils/watchdog.py:103@0.5.23,
scheduler_components/invariant_checker.py:494@0.5.23).
"""

from __future__ import annotations

from typing import Literal

from fakes.engine.crash import Crash

DUMP_S = 5.0
"""It dumps and sleeps before it signals (utils/watchdog.py:103@0.5.23)."""

Cause = Literal["pause", "block"]


class Watchdog:
    """`timeout_s`: --watchdog-timeout, seconds."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since: dict[Cause, float] = {}

    def stopped(self, cause: Cause, now: float) -> None:
        """No pass ends from now on."""
        self._since.setdefault(cause, now)

    def goes_on(self, cause: Cause) -> None:
        """That cause is over."""
        self._since.pop(cause, None)

    @property
    def deadline(self) -> float | None:
        """When it kills, virtual seconds."""
        since = min(self._since.values(), default=None)
        return None if since is None else since + self._timeout_s * 1.5

    def check(self, now: float) -> None:
        """Raises `Crash` when it is time."""
        deadline = self.deadline
        if deadline is not None and now >= deadline:
            text = f"Scheduler watchdog timeout (watchdog_timeout={self._timeout_s:g})"
            raise Crash("Watchdog", text, extra_delay_s=DUMP_S, alive=True)
