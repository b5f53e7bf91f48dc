"""Ranks 1 and up of an update from disk: each reads in its own time, and nobody waits for it or hears of it.

Rank 0 alone answers, and no barrier follows the load (managers/scheduler_components/weight_updater.py:138@0.5.23,
managers/scheduler_update_weights_mixin.py:52@0.5.12.post1). So a folder may go while another rank still reads it. One
that has not looked yet refuses in silence and keeps its weights (model_runner_components/weight_updater.py:228@0.5.23);
one that has looked fails, and dies in the rollback, which looks again (:239).

Requests reach every rank in one order (scheduler_components/request_receiver.py:206@0.5.23), over a broadcast that its
source need not wait in. So rank 0 goes on by itself until it meets the others in a collective: `ALONE` are the requests
that need none.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fakes.engine.crash import Crash
from fakes.engine.loading import LoadError
from fakes.engine.protocol import Block, Done, ReadDisk

if TYPE_CHECKING:
    from fakes.engine.scheduler import Scheduler

ALONE = frozenset(
    {
        "generate",
        "abort",
        "pause",
        "continue",
        "flush_cache",
        "update_weight_version",
        "update_weights_from_disk",
        "server_info",
        "slow_down",
        "get_load",
    }
)
"""What rank 0 does without the others. A generation is taken, too: its first step needs them."""

LOOKS_WITHIN_S = 0.020
READS_WITHIN_S = 0.050
LATE_LOOKS = 4
"""One of so many looks comes after the answer of rank 0; the others come with the request."""


@dataclass
class Read:
    """One rank's part of one update. `at` is when it does what comes next, virtual seconds; `waits` the effect that it
    is blocked in."""

    update: int
    path: str
    load_format: str | None
    at: float
    reads_at: float
    looked: bool = False
    waits: int | None = None
    got: Done | None = None


class LateRanks:
    """What the ranks beside rank 0 have still to read, in the order in which they were told."""

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self._s = scheduler
        self._seed = seed
        self._queues: dict[int, deque[Read]] = {}
        self._stepping = False

    @property
    def busy(self) -> bool:
        """Whether some rank has not read all that it was told to read."""
        return bool(self._queues)

    @property
    def deadline(self) -> float | None:
        """When the next of them goes on by itself."""
        return min((queue[0].at for queue in self._queues.values() if queue[0].waits is None), default=None)

    def begin_step(self) -> None:
        """Rank 0 begins a forward step, in which it waits for the others."""
        self._stepping = True

    def awaited(self, op: str | None) -> bool:
        """Whether rank 0 waits in a collective for ranks that are late: in a step, or for the request that is next."""
        if not self.busy:
            self._stepping = False
            return False
        return self._stepping or (op is not None and op not in ALONE)

    def told(self, update: int, path: str, load_format: str | None) -> None:
        """Rank 0 begins an update: the others do so in their own time, drawn from the engine's seed."""
        now = self._s.now
        for rank in range(1, len(self._s.ranks)):
            drawn = hashlib.sha256(f"{self._seed}/{update}/{rank}".encode()).digest()
            looks_at = now if drawn[0] % LATE_LOOKS else now + LOOKS_WITHIN_S * (1 + drawn[1]) / 256
            reads_at = looks_at + READS_WITHIN_S * (1 + drawn[2]) / 256
            self._queues.setdefault(rank, deque()).append(Read(update, path, load_format, looks_at, reads_at))

    def done(self, event: Done) -> bool:
        """The front finished an effect; whether it was one of ours."""
        for queue in self._queues.values():
            if queue[0].waits == event.id:
                queue[0].got = event
                return True
        return False

    def run(self) -> bool:
        """Everything that is due; whether anything was. Raises `Crash`."""
        went_on = [self._go_on(rank, queue) for rank, queue in list(self._queues.items())]
        return any(went_on)

    def _go_on(self, rank: int, queue: deque[Read]) -> bool:
        read = queue[0]
        if read.got is not None:
            got, read.got, read.waits = read.got, None, None
            if got.error is None and not read.looked:
                read.looked, read.at = True, read.reads_at
                return True
            queue.popleft()
            if not queue:
                del self._queues[rank]
            self._ended(rank, read, got)
            return True
        if read.waits is not None or read.at > self._s.now:
            return False
        read.waits = self._s.next_id()
        look = not read.looked
        self._s.emit(ReadDisk(id=read.waits, path=read.path, load_format=read.load_format, rank=rank, looks_only=look))
        self._s.emit(Block(rank, read.waits))
        return True

    def _ended(self, rank: int, read: Read, event: Done) -> None:
        updater = self._s.updater
        if event.error is not None and not read.looked:
            updater.wholeness.break_()  # rank 0 has said that all is well
            return
        if event.error is not None:
            raise Crash(event.error.type, event.error.message, rank)
        weights = self._s.ranks[rank]
        try:
            names = weights.load(event.value)
        except LoadError as error:
            raise Crash(error.type, error.message, rank) from None
        except Exception as error:  # what Python itself trips over: a number of too many digits, say
            raise Crash(type(error).__name__, str(error), rank) from error
        updater.loaded(rank, names, read.update, "disk")
        weights.finalise()
