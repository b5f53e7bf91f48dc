"""What becomes of a unit whose worker process is no more: another worker has it once, then it is a harness error.

A unit gives the same verdict wherever it runs, so that a worker which something else killed (kill -9, the kernel short
of memory) costs time alone. A client that ends its worker wherever it is asked is not asked for ever.
"""

from __future__ import annotations

from collections import defaultdict

from harness.rules import Verdict, unsupported
from harness.runner import MOST_HANGS, MOST_HANGS_IN_ALL
from harness.settings import Settings
from harness.streams import complain
from harness.suites import load_book
from harness.units import Finding, Unit, UnitReport, invariants_judged, judged


class Losses:
    """The units of one run that took a worker with them, of each client: those that hung, and all."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: set[object] = set()
        self._hung: dict[str, list[str]] = defaultdict(list)
        self._all: dict[str, list[str]] = defaultdict(list)

    def again(self, what: object, why: str) -> bool:
        """Whether another worker is to do this, which was lost for the first time; says so of a unit."""
        if what in self._seen:
            return False
        self._seen.add(what)
        if isinstance(what, Unit):
            complain(f"{_placed(what, why)}; it runs again in another one")
        return True

    def report(self, unit: Unit, why: str, *, hung: bool) -> UnitReport:
        """A unit that is lost for good."""
        error = _placed(unit, why) + (", and so did the next one" if unit in self._seen else "")
        for kept in (self._hung, self._all) if hung else (self._all,):
            kept[unit.sut].append(error)
        return UnitReport(unit, error=error)

    def given_up(self, unit: object) -> UnitReport | None:
        """A unit that is not run, because too many of its client were lost; None for any other call."""
        if not isinstance(unit, Unit):
            return None
        lost = self._all[unit.sut]
        if len(lost) < MOST_HANGS_IN_ALL and len(self._hung[unit.sut]) < MOST_HANGS:
            return None
        why = f"not run: the client ended {len(lost)} worker processes before, the last one in {lost[-1]}"
        return UnitReport(unit, self._everywhere(unit, unsupported(why)))

    def fell(self, unit: Unit, why: str) -> UnitReport:
        """A unit whose engine took its client's process with it."""
        return UnitReport(unit, self._everywhere(unit, Verdict("inconclusive", actual=why)), runs=1, fell=why)

    def _everywhere(self, unit: Unit, verdict: Verdict) -> dict[str, Finding]:
        book = load_book()
        scenario = book.scenarios[unit.scenario]
        rules = judged(self._settings, book, scenario, unit.version)
        rules += invariants_judged(self._settings, book, scenario)
        return {rule.id: Finding(verdict) for rule in rules}


def _placed(unit: Unit, why: str) -> str:
    """Begins with the scenario and does not name it twice."""
    place = f"scenario {unit.scenario}"
    return f"{place}: {why.replace(f'{place}: ', '').removesuffix(f' after {place}')}"
