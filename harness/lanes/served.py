"""One server process of a scenario, and whether its end was anybody's wish."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from harness.lanes.run_folder import full

if TYPE_CHECKING:
    from fakes.fronts.launcher import ForkedServer

_TAIL = 1 << 16


class Served:
    """A running server whose facts go to the file `trace`.

    `lost` is "" or one line, known after `stop`: it ended though neither its engine died nor this run killed it.
    """

    def __init__(self, process: ForkedServer, trace: Path) -> None:
        self.process = process
        self.url = process.url
        self.lost = ""
        self._trace = trace
        self._killed = False

    @property
    def pid(self) -> int:
        """Its process, and its process group."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still exists."""
        return self.process.alive

    def kill(self) -> None:
        """kill -9, as a scenario or a fault wants it."""
        self._killed = True
        self.process.kill()

    def stop(self) -> None:
        """End it, whatever state it is in; may be called twice."""
        from fakes.fronts.launch_server import TRACE_LOST

        early = self.process.returncode
        self.process.stop()
        if self.process.returncode == TRACE_LOST:
            where = self._trace.parent
            self.lost = f"it could not write its trace; {full(where) or f'see whether there is room in {where}'}"
        elif early is not None and not self._killed and not self._died():
            how = f"of {signal.Signals(-early).name}" if early < 0 else f"with code {early}"
            self.lost = f"its process ended {how}, and neither this run nor its engine wanted that"

    def _died(self) -> bool:
        """Whether the last facts tell of the engine's own death."""
        with self._trace.open("rb") as file:
            file.seek(max(0, self._trace.stat().st_size - _TAIL))
            return b'"name":"die"' in file.read()
