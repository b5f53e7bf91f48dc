"""In which order findings are told: what to mend first, and what likely comes of it.

The order, of one engine version and one system under test:

1. what leads before what stands behind another finding;
2. among leads, what breaks where no call of the client had met a fault before what breaks after one;
3. then that behind which most others stand, then the earlier place in its history, then the order of the book.

A finding stands behind another one in three cases, the first that applies. Its rule says so of the very history
(`Rule.follows`). Its rule says so of a plainer scenario (`Rule.echoes`). Or the histories say so: wherever it is broken
and the other was judged, the other is broken too, and not later (at one call, before it in the book), and either both
are about what the client did in one refit, or the finding is about what engines answered afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.places import Breaches, Place
from harness.results import Result
from harness.units import UnitReport

Why = Literal["", "follows", "echoes", "behind"]
_Parents = dict[str, tuple[Result, Why]]


@dataclass(frozen=True)
class Told:
    """A violated result, the lead that it stands behind (None: it leads itself), what it stands behind at once, why."""

    result: Result
    lead: Result | None = None
    behind: Result | None = None
    why: Why = ""


def in_order(violated: Sequence[Result], reports: Iterable[UnitReport]) -> list[Told]:
    """Leads in their order, then what stands behind each of them, in the order of the leads."""
    reports = list(reports)
    out: list[Told] = []
    for target in dict.fromkeys((r.version, r.sut) for r in violated):
        mine = [r for r in violated if (r.version, r.sut) == target]
        seen = [b for report in reports if _of(report, target) for b in report.breaches]
        out += _ordered(mine, seen)
    return out


def _of(report: UnitReport, target: tuple[str, str]) -> bool:
    return report.unit.version == target[0] and report.unit.sut in (target[1], "")


def _ordered(violated: Sequence[Result], seen: Sequence[Breaches]) -> list[Told]:
    number = {result.rule.id: n for n, result in enumerate(violated)}
    parents: _Parents = {}
    for why, find in _WAYS:
        for result in violated:
            found = None if result.rule.id in parents else find(result, violated, seen, parents)
            if found is not None and not _above(found, result, parents):
                parents[result.rule.id] = found, why
    told = [_told(result, parents) for result in violated]
    followers = {r.rule.id: sum(t.lead is r for t in told) for r in violated}

    def rank(result: Result) -> tuple[bool, int, int, int]:
        place = result.place or Place(0)
        return after_fault(result), -followers[result.rule.id], place.pos, number[result.rule.id]

    def order(one: Told) -> tuple[object, ...]:
        lead = one.lead or one.result
        return one.lead is not None, rank(lead), one.lead is not None and rank(one.result)

    return sorted(told, key=order)


def _told(result: Result, parents: _Parents) -> Told:
    if result.rule.id not in parents:
        return Told(result)
    behind, why = parents[result.rule.id]
    lead = behind
    while lead.rule.id in parents:
        lead = parents[lead.rule.id][0]
    return Told(result, lead, behind, why)


def _above(one: Result, other: Result, parents: _Parents) -> bool:
    """Whether `one` stands behind `other` already: no circles."""
    while one.rule.id in parents:
        one = parents[one.rule.id][0]
        if one is other:
            return True
    return False


def _followed(result: Result, violated: Sequence[Result], _seen: Sequence[Breaches], _: _Parents) -> Result | None:
    causes = [cause.rule for cause in result.causes]
    return next((other for cause in causes for other in violated if other.rule.id == cause), None)


def _echoed(result: Result, violated: Sequence[Result], _seen: Sequence[Breaches], _: _Parents) -> Result | None:
    return echo_of(result, violated)


def _first(result: Result, violated: Sequence[Result], seen: Sequence[Breaches], parents: _Parents) -> Result | None:
    """Of several a lead before what stands behind one itself."""
    listed = violated.index(result)
    found = [
        (other.rule.id in parents, earlier, n)
        for n, other in enumerate(violated)
        if n != listed and (earlier := _earlier(other, result, seen, tied=n < listed))
    ]
    return violated[min(found)[2]] if found else None


def echo_of(result: Result, violated: Sequence[Result]) -> Result | None:
    """The breach of a more general rule, in another scenario, that this one likely repeats (`Rule.echoes`): one that
    shows without a fault too, where this one does."""
    general = (r for r in violated if r.rule.id in result.rule.echoes and r.version == result.version)
    return next((r for r in general if r.scenario != result.scenario and after_fault(r) <= after_fault(result)), None)


def after_fault(result: Result) -> bool:
    """Whether it shows only where a call of the client had met a fault."""
    return bool(result.faults) or (result.place is not None and result.place.after_fault)


def _earlier(other: Result, result: Result, seen: Sequence[Breaches], *, tied: bool) -> tuple[int, int] | None:
    """How early `other` is broken (after a fault or not, where) if it is so wherever `result` is and it was judged.

    `tied`: whether it is the first of two at one place.
    """
    one, two = other.rule.id, result.rule.id
    found: list[tuple[int, int]] = []
    for breaches in seen:
        if two not in breaches.places or one not in breaches.judged:
            continue
        first, second = breaches.places.get(one), breaches.places[two]
        if first is None or not _before(first, second, tied):
            return None
        found.append((first.after_fault, first.pos))
    return min(found, default=None)


def _before(first: Place, second: Place, tied: bool) -> bool:
    if first.pos > second.pos or (first.pos == second.pos and not tied):
        return False
    return not second.own or (first.own and first.refit == second.refit)


def starts(told: Sequence[Told]) -> list[list[Told]]:
    """The findings of each version and system under test that has more than one; where to start is the first."""
    targets: dict[tuple[str, str], list[Told]] = {}
    for one in told:
        targets.setdefault((one.result.version, one.result.sut), []).append(one)
    return [found for found in targets.values() if len(found) > 1]


_Way = Callable[[Result, Sequence[Result], Sequence[Breaches], _Parents], Result | None]
_WAYS: tuple[tuple[Why, _Way], ...] = (("follows", _followed), ("echoes", _echoed), ("behind", _first))
