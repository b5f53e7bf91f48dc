"""The broadcast lock: asked for with a deadline, held under a name, given back on every way out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from harness.reference.deadline import Deadline
from harness.reference.errors import LockBusy
from harness.sut.protocol import ClockLike

POLL_S = 0.05


class Lock(Protocol):
    """The lock actor (`fakes.trainer.lock`)."""

    def holder(self) -> str:
        """Who has it, "" for nobody."""
        ...

    def try_acquire(self, owner: str, lease_s: float) -> bool:
        """Take it for so long, or not at all."""
        ...

    def release(self, owner: str) -> bool:
        """Give it back if it is this owner's."""
        ...


@contextmanager
def held(lock: Lock, owner: str, clock: ClockLike, deadline: Deadline) -> Iterator[None]:
    """Hold the lock as `owner` for the body. LockBusy, naming who has it, when it is not free before the deadline.

    The lease is as long as the whole refit may still take: if this process dies, the lock comes back by itself.
    """
    until = clock.now() + deadline.work("lock") / 2
    while not lock.try_acquire(owner, deadline.last()):
        if clock.now() + POLL_S > until:
            raise LockBusy(f"transfer: the broadcast lock is held by {lock.holder() or 'somebody'}")
        clock.sleep(POLL_S)
    try:
        yield
    finally:
        lock.release(owner)
