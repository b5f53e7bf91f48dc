"""One deadline for a whole refit; every call spends from it."""

from __future__ import annotations

from harness.reference.errors import DeadlineSpent
from harness.sut.protocol import ClockLike

RESERVED_SHARE = 0.25
RESERVED_AT_MOST_S = 60.0


class Deadline:
    """`total_s` seconds of the fleet's clock, the last quarter of which (60 s at most) only giving back may spend.

    Without that reserve an engine that never answers would use up the time in which the others are continued.
    """

    def __init__(self, clock: ClockLike, total_s: float) -> None:
        if not total_s > 0:
            raise ValueError(f"a refit needs a deadline above 0 s, not {total_s!r}")
        self._clock = clock
        self._reserve = min(total_s * RESERVED_SHARE, RESERVED_AT_MOST_S)
        self._ends = clock.now() + total_s
        self._work_ends = self._ends - self._reserve

    def work(self, step: str) -> float:
        """Seconds that `step` may take. DeadlineSpent when there are none."""
        left = self._work_ends - self._clock.now()
        if left <= 0:
            raise DeadlineSpent(f"{step}: the refit's deadline is spent")
        return left

    def meeting(self, step: str, share: float = 0.25) -> float:
        """Seconds in which ranks may wait for each other: `share` of the reserve longer than any call may take.

        So a rank that waited for a silent engine until the end of work still meets the ranks that waited for it.
        """
        left = self._work_ends + share * self._reserve - self._clock.now()
        if left <= 0:
            raise DeadlineSpent(f"{step}: the refit's deadline is spent")
        return left

    def giving_back(self, step: str) -> float:
        """Seconds that giving one thing back may take: work's share, or half of all that is left for what follows."""
        now = self._clock.now()
        left = max(self._work_ends - now, (self._ends - now) / 2)
        if left <= 0:
            raise DeadlineSpent(f"{step}: the refit's deadline is spent, its reserve too")
        return left

    def last(self) -> float:
        """All that is left, for the last step; 0 or less when it is spent."""
        return self._ends - self._clock.now()
