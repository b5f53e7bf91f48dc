"""The lock that trainers keep in an actor of its own, so that only one of them broadcasts to a set of engines.

It gives itself to one owner for a while: a holder that died is overtaken when its lease is over, and whoever gives back
what is not his any more gives back nothing. How long to ask for it, and when to stop asking, is the client's business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

Record = Callable[[str, int, Mapping[str, Any]], None]


class LockActor:
    """`now()` in seconds; record("lock", rank, data) gets what happens."""

    def __init__(self, now: Callable[[], float], record: Record) -> None:
        self._now = now
        self._record = record
        self._owner = ""
        self._until = 0.0
        self._guard = threading.Lock()

    def holder(self) -> str:
        """Who has it now; "" when it is free or its lease is over."""
        with self._guard:
            return self._owner if self._owner and self._now() < self._until else ""

    def try_acquire(self, owner: str, lease_s: float) -> bool:
        """Take it for `lease_s` seconds; False while somebody else has it."""
        with self._guard:
            now = self._now()
            if self._owner and self._owner != owner and now < self._until:
                return False
            overtook = self._owner if self._owner != owner else ""
            self._owner, self._until = owner, now + lease_s
        self._record("lock", 0, {"op": "acquire", "owner": owner, "lease_s": lease_s, "overtook": overtook})
        return True

    def release(self, owner: str) -> bool:
        """Give it back; False, and nothing happens, when it is not this owner's."""
        with self._guard:
            mine = bool(owner) and self._owner == owner
            if mine:
                self._owner = ""
        self._record("lock", 0, {"op": "release", "owner": owner, "mine": mine})
        return mine
