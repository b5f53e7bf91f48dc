"""One rank of a checkpoint engine's ParameterServer: one buffer of two halves on its GPU, filled in turns.

The protocol of checkpoint_engine/ps.py:723@0.4.2: the buffer's handle, per bucket what it holds and where, None to let
go of the buffer, None again to finish. 0.1.2 says one None.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fakes.trainer.kit import TrainerKit
from fakes.trainer.registry import Consumer
from fakes.trainer.worker_line import ALIGN, WorkerLine, aligned

Named = Sequence[tuple[str, np.ndarray]]


class ServerError(RuntimeError):
    """A worker answered with a traceback, or not in time."""


class ParameterServer:
    """Rank `rank` at `address`. `step()` at a time, or `run()`. `package` is the version whose protocol it speaks.

    buckets: what each message carries. ServerError from whichever call meets it; after one, `give_up()`.
    """

    def __init__(
        self,
        kit: TrainerKit,
        rank: int,
        address: str,
        buckets: Sequence[Named],
        *,
        consumers: Sequence[Consumer] = (),
        package: str = "0.4.2",
    ) -> None:
        self._kit, self._buckets, self._package = kit, list(buckets), package
        self._half = max((sum(aligned(a.nbytes) for _, a in bucket) for bucket in buckets), default=ALIGN)
        self._line = WorkerLine(kit, rank, address, 2 * self._half, consumers)
        self._what = f"the worker at {address}"

    def run(self, timeout_s: float) -> None:
        """The whole update."""
        self.offer(timeout_s)
        for index in range(len(self._buckets)):
            self.bucket(index, timeout_s)
        self.finish(timeout_s)

    def offer(self, timeout_s: float) -> None:
        """Hand over the buffer."""
        self._line.offer([name for bucket in self._buckets for name, _ in bucket])
        self._answer(timeout_s)

    def bucket(self, index: int, timeout_s: float) -> None:
        """Fill a half and say what is in it."""
        self._line.tell(self._line.fill(index % 2 * self._half, self._buckets[index]))
        self._answer(timeout_s)

    def finish(self, timeout_s: float) -> None:
        """Take the buffer back, then let the worker end."""
        self._line.end()
        self._answer(timeout_s)
        self._line.free()
        if self._package != "0.1.2":
            self._line.end()
            self._answer(timeout_s)

    def give_up(self) -> None:
        """Tell the worker to stop, as a server does when any worker failed (ps.py:850@0.4.2)."""
        if not self._line.stop("Some workers failed to update weights"):
            raise ValueError("Operation cannot be accomplished in current state")
        self._line.free()

    def _answer(self, timeout_s: float) -> None:
        if not self._kit.until(lambda: self._line.answered, timeout_s, self._what):
            raise ServerError(f"{self._what} did not answer within {timeout_s:g} s")
        answer = self._line.reply()
        if answer:
            raise ServerError(answer)
