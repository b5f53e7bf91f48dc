"""Which tensors a refit brought to an engine: the cause behind wrong content, where it was recorded.

A request shows digests only. What was in a payload is told by the trainer's records (`export`: its digest and its
names) or, on a fake, by the engine's own `load` facts. Neither is needed for a verdict; both make it say why.
"""

from __future__ import annotations

from collections.abc import Iterable

from conformance.refits import Part
from conformance.view import UPDATE_OPS, acted, payloads
from harness.history import History

SHOWN = 3
NEVER_SENT = "never sent: "
"""What a missing tensor's name follows in a verdict; reports group by it."""


def never_sent(part: Part, history: History) -> tuple[str, ...]:
    """Names of the state of this refit that no update which the engine took carried; () where nothing tells."""
    wanted = part.refit.data.get("names") or ()
    came = _exported(part, history)
    came = _loaded(part, history) if came is None else came
    return () if came is None else tuple(name for name in wanted if name not in came)


def because(part: Part, history: History) -> str:
    """`; never sent: a, b, c and 3 more`, or "" where everything came or nothing tells."""
    missing = never_sent(part, history)
    return f"; {NEVER_SENT}{listed(missing)}" if missing else ""


def listed(names: Iterable[str]) -> str:
    """The first three names, and how many more there are."""
    all_ = list(names)
    more = len(all_) - SHOWN
    return ", ".join(all_[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _exported(part: Part, history: History) -> frozenset[str] | None:
    """From the records of the trainer's exports, if they name what every update carried; nothing came without one."""
    if not part.op(*UPDATE_OPS):
        return frozenset()
    names = {str(note.get("sha256")): note.get("names", ()) for note in history.trainer("export")}
    sent = [payload for call in part.payload_buckets if acted(call) for payload in payloads(call)]
    if not names or not all(payload in names for payload in sent):
        return None
    return frozenset(str(name) for payload in sent for name in names[payload])


def _loaded(part: Part, history: History) -> frozenset[str] | None:
    """From what the engine's core says that it loaded; a real engine does not say."""
    loads = history.facts("load", source="core", engine=part.engine)
    if not loads:
        return None
    mine = [n for n in loads if part.refit.pos < n.pos < part.refit.end_pos and n.incarnation == part.incarnation]
    return frozenset(str(name) for note in mine for name in note.get("names", ()))
