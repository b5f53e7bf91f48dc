"""The markers of refits in a bundle's histories: paired, growing, after GROUP_READY; and what its servers' logs say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from harness.history import History, Note
from real_runs.evidence.files import Files
from real_runs.evidence.training import fatal

STARTS, ENDS = "REFIT_START", ("REFIT_SUCCESS", "REFIT_FAILURE")


def wrong_markers(name: str, history: History) -> Iterator[str]:
    """Why the markers of one history are not those of refits one after the other; a history without any is none."""
    under_way: Note | None = None
    last, ready = 0, 0
    for note in history.trainer():
        if note.name == "GROUP_READY":
            ready = int(note.get("engines") or 0)
            if ready < 1 or int(note.get("world_size") or 0) < ready or len(note.get("names") or ()) != ready:
                yield f"{name}: {note}: GROUP_READY of {note.get('engines')} engines, {note.get('world_size')} ranks"
        elif note.name == STARTS:
            if under_way is not None:
                yield f"{name}: {note}: refit {note.get('index')} starts while {under_way.get('index')} has not ended"
            if note.get("index") != last + 1:
                yield f"{name}: {note}: refit {note.get('index')} starts after refit {last}"
            under_way, last = note, last + 1
        elif note.name in ENDS:
            what = ("index", "transfer", "version")
            if under_way is None or any(note.get(field) != under_way.get(field) for field in what):
                yield f"{name}: {note}: refit {note.get('index')} ends and was not under way"
            if note.name == "REFIT_SUCCESS":
                yield from (f"{name}: {note}: {line}" for line in _wrong_success(note, ready))
            under_way = None
    if under_way is not None and not any(refit.data.get("hung") for refit in history.refits()):
        yield f"{name}: {under_way}: refit {under_way.get('index')} has no end"


def _wrong_success(note: Note, ready: int) -> Iterator[str]:
    took = note.get("duration_s")
    if isinstance(took, bool) or not isinstance(took, int | float) or not math.isfinite(took) or took <= 0:
        yield f"refit {note.get('index')} took {took} s"
    if not ready:
        yield f"refit {note.get('index')} succeeded before GROUP_READY"


def wrong_logs(files: Files, histories: Mapping[str, History]) -> Iterator[str]:
    """In a run of refits no more logs tell of something fatal than engines ended."""
    if not any(history.refits() for history in histories.values()):
        return
    ended = sum(_ended(history) for history in histories.values())
    told = {
        name: lines
        for name, data in sorted(files.items())
        if name.startswith("logs/") and (lines := list(fatal.found(name, data.decode("utf-8", "replace"))))
    }
    if len(told) > ended:
        yield from (f"{lines[0]}; {len(told)} logs say such a thing, {ended} engines ended" for lines in told.values())


def _ended(history: History) -> int:
    """How many engines were killed, restarted, or gone with no planted fault that only says so."""
    seen = {(call.engine, call.incarnation) for call in history.calls_}
    gone = {
        (call.engine, call.incarnation)
        for call in history.calls_
        if call.fault.endswith(":die") or (call.error.startswith(("refused", "dropped")) and not call.fault)
    }
    return len({engine for engine in seen if engine[1]} | gone)
