"""One finished run, as every report sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from harness.lanes.info import LaneInfo
from harness.results import Result
from harness.settings import Settings
from harness.units import UnitReport

STATUSES = ("held", "violated", "inconclusive", "unsupported", "error")


def our_version() -> str:
    """The version of the installed distribution."""
    try:
        return version("refitcheck")
    except PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class Run:
    """Settings, what came of them, and how long it took (real seconds).

    `started` is the date and time (ISO 8601, UTC) at which it began.
    """

    settings: Settings
    lane: LaneInfo
    results: Sequence[Result]
    reports: Sequence[UnitReport]
    seconds: float
    exit_code: int
    started: str = ""

    @property
    def engines(self) -> str:
        """fake:0.5.23,0.5.20."""
        return f"{self.lane.kind}:{','.join(self.settings.versions)}"

    def counts(self) -> Counter[str]:
        """Results by status."""
        return Counter(result.status for result in self.results)

    def families(self) -> dict[str, tuple[int, int]]:
        """Family -> (held, judged); unsupported results are not judged."""
        out: dict[str, tuple[int, int]] = {}
        for result in self.results:
            if result.status == "unsupported":
                continue
            held, judged = out.get(result.rule.family, (0, 0))
            out[result.rule.family] = (held + (result.status == "held"), judged + 1)
        return out

    def exercised(self) -> dict[str, int]:
        """Rule id -> how often its precondition really occurred, over all engines."""
        out: dict[str, int] = {}
        for result in self.results:
            out[result.rule.id] = out.get(result.rule.id, 0) + result.verdict.exercised
        return out

    def with_status(self, *statuses: str) -> list[Result]:
        """Results of these statuses."""
        return [result for result in self.results if result.status in statuses]
