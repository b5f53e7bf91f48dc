"""What a pytest run of the suites came to, from all of its processes: the same files as `refitcheck run` writes."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from harness.judgement import HANGS
from harness.lanes.info import LaneInfo
from harness.report.run import Run
from harness.results import EXIT, Result, exit_code, results_of
from harness.settings import Settings
from harness.suites import Book
from harness.units import Unit, UnitReport


@dataclass
class Gathered:
    """The units that ran and the rules (id, engine version, system under test) that were judged, here and in workers.

    `lost` where a worker crashed: what it ran is not known.
    """

    reports: dict[Unit, UnitReport] = field(default_factory=dict)
    judged: set[tuple[str, str, str]] = field(default_factory=set)
    lost: bool = False
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    begun: float = field(default_factory=time.perf_counter)

    def packed(self) -> bytes:
        """For `take` in another process of the same run."""
        return pickle.dumps((self.reports, self.judged))

    def take(self, packed: bytes | None) -> None:
        """What a worker ran; None of one that crashed."""
        if packed is None:
            self.lost = True
            return
        reports, judged = pickle.loads(packed)  # of a process of ours, over the pipe of xdist
        self.reports = {**reports, **self.reports}
        self.judged |= judged

    def run(self, settings: Settings, book: Book, lane: LaneInfo, units: Sequence[Unit], unmet: str) -> Run:
        """All of it as a run."""
        order = {unit: number for number, unit in enumerate(units)}
        reports = sorted(self.reports.values(), key=lambda report: order[report.unit])
        results = [r for r in results_of(settings, book, lane, reports) if self._belongs(r)]
        code = exit_code(settings, results) or (EXIT["inconclusive"] if unmet else 0)
        code = EXIT["error"] if self.lost else code
        return Run(settings, lane, results, reports, time.perf_counter() - self.begun, code, self.started)

    def _belongs(self, result: Result) -> bool:
        """Whether it was judged, or says that a client hung, asked for or not."""
        if (result.rule.id, result.version, result.sut) in self.judged:
            return True
        return result.rule is HANGS and result.status == "violated"
