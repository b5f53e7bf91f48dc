"""Where in its history a violation shows: what reports put findings in order by.

Judges name the place in words for a person; what those words name, a call, a record or a refit, is looked up here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.faults import Fault
from harness.happenings import Call, Note, Refit
from harness.history import History

_CALL = re.compile(r"t=-?[\d.]+ \S+ [A-Z]+ /\S* -> \w+")
_NOTE = re.compile(r"t=-?[\d.]+ \S+ (\w+):(\w+)")
_REFIT = re.compile(r"\brefit (\S+?)(?: on ([^\s:]+))?(?=[\s:)]|$)")


@dataclass(frozen=True)
class Place:
    """A place in one history.

    `pos` is that of the call, the record or the refit's last call, else the end of the history. `refit` is the index of
    the refit that was under way, or that was the last before it; -1 before any. `own`: something that the client did,
    and not what an engine answered to others afterwards. `after_fault`: by then a call of the client had met a fault or
    got no answer, or a refit had failed.
    """

    pos: int
    refit: int = -1
    own: bool = True
    after_fault: bool = False


@dataclass(frozen=True)
class Breaches:
    """What one history breaks, and where; `judged` are the rules that had something to say of it."""

    faults: tuple[Fault, ...]
    places: Mapping[str, Place]
    judged: frozenset[str]


def breaches_of(faults: tuple[Fault, ...], places: Mapping[str, Place | None]) -> Breaches | None:
    """What a history breaks, of the places of all rules that judged it (None: not broken); None where it is nothing."""
    broken = {rule: place for rule, place in places.items() if place is not None}
    return Breaches(faults, broken, frozenset(places)) if broken else None


def done_in(history: History) -> set[str]:
    """What the client did in its refits, as `Rule.speaks_of` counts it: operations, and ":field" of its calls."""
    done: set[str] = set()
    refits = history.refits()
    for call in history.calls(origin="sut"):
        if any(refit.pos < call.pos < refit.end_pos for refit in refits):
            done.add(call.op)
            if isinstance(call.request, Mapping):
                done |= {f":{name}" for name, value in call.request.items() if value is not None}
    return done


def place_of(where: str, history: History) -> Place:
    """The place that a judge's words name; a call before a record before a refit, and of several the first."""
    refits = history.refits()
    named = _call(where, history) or _note(where, history)
    if named is None:
        whole = _judged_whole(where, history, refits)
        return _placed(history.length if whole is None else whole, True, history, refits)
    own = named.origin == "sut" if isinstance(named, Call) else named.source == "trainer"
    return _placed(named.pos, own, history, refits)


def _placed(pos: int, own: bool, history: History, refits: Iterable[Refit]) -> Place:
    begun = [refit.index for refit in refits if refit.pos <= pos]
    before = (call for call in history.calls(origin="sut") if call.pos <= pos)
    # a call that is named itself and got no answer brought that about itself, unless the gate did
    hurt = any(call.tampered or (call.outcome == "indefinite" and call.pos < pos) for call in before)
    hurt = hurt or any(refit.ok is False and refit.end_pos < pos for refit in refits)
    return Place(pos, begun[-1] if begun else -1, own, hurt)


def _call(where: str, history: History) -> Call | None:
    found = _CALL.search(where)
    return next((c for c in history.calls_ if str(c) == found[0]), None) if found else None


def _note(where: str, history: History) -> Note | None:
    found = _NOTE.search(where)
    return next((n for n in history.notes_ if n.name == found[2] and str(n) == found[0]), None) if found else None


def _judged_whole(where: str, history: History, refits: Iterable[Refit]) -> int | None:
    """Of the refit that is named by its index or its version: its last call to that engine, else its end."""
    for name, engine in _REFIT.findall(where):
        for refit in refits:
            if name in (str(refit.index), refit.version):
                calls = history.during(refit).calls(origin="sut")
                return max((c.pos for c in calls if engine in ("", c.engine)), default=refit.end_pos)
    return None
