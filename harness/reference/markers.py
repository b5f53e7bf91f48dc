"""The lines that a refit leaves in the trainer's log, so that a run can be judged afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from harness.sut.protocol import ClockLike

Record = Callable[[str, int, Mapping[str, Any]], None]


class Markers:
    """Writes markers through `Fleet.record`, all as rank 0. `phase` is the step that is under way."""

    def __init__(self, record: Record, clock: ClockLike) -> None:
        self._record = record
        self._clock = clock
        self.phase = ""

    @contextmanager
    def refit(self, *, transfer: str, index: int, version: str) -> Iterator[None]:
        """REFIT_START, then one of REFIT_SUCCESS and REFIT_FAILURE, which has phase and type of the first error."""
        what = {"transfer": transfer, "index": index, "version": version}
        began = self._clock.now()
        self.phase = "prepare"
        self._record("REFIT_START", 0, what)
        try:
            yield
        except BaseException as error:
            failed = {"phase": self.phase, "error_type": type(error).__name__, "message": str(error)}
            self._record("REFIT_FAILURE", 0, what | failed)
            raise
        self._record("REFIT_SUCCESS", 0, what | {"duration_s": self._clock.now() - began})

    def group_ready(self, world_size: int, engines: Sequence[str]) -> None:
        """Every engine confirmed: only now may this be called."""
        self._record("GROUP_READY", 0, {"world_size": world_size, "engines": len(engines), "names": list(engines)})

    def engine(self, name: str, engine: str, incarnation: int, reason: str) -> None:
        """ENGINE_LOST (no call is sent to this incarnation any more) or ENGINE_HELD (paused until the next refit)."""
        self._record(name, 0, {"engine": engine, "incarnation": incarnation, "reason": reason})

    def terminal(self, reason: str) -> None:
        """No later refit will run."""
        self._record("TERMINAL", 0, {"reason": reason})

    def offloaded(self, live_exports: int) -> None:
        """The trainer may use its memory for itself again."""
        self._record("OFFLOADED", 0, {"live_exports": live_exports})
