"""What parameter servers of a checkpoint engine did, as the trainer recorded it: lines, fills, messages, answers.

Records, each with the `address` of a line: `ipc_line` {uuid, gpu}, `ipc_fill` {start, end}, `ipc_ask` {kind, spans},
`ipc_reply` {good}, `ipc_free`. kind: buffer, weights, none, stop.
"""

from __future__ import annotations

from conformance.exports import gpus_of
from conformance.refits import Finding, Part
from conformance.view import tp
from harness.history import Call, History, Note
from harness.rules import Verdict, held, violated

UPDATE = "update_weights_from_ipc"
RECORDS = ("ipc_line", "ipc_fill", "ipc_ask", "ipc_reply", "ipc_free")
Span = tuple[int, int]


def lines(history: History) -> dict[str, list[Note]]:
    """Address -> its records, in order."""
    notes = sorted((n for name in RECORDS for n in history.trainer(name)), key=lambda n: n.pos)
    out: dict[str, list[Note]] = {}
    for note in notes:
        out.setdefault(str(note.get("address")), []).append(note)
    return out


def _handles(call: Call) -> dict[str, str]:
    given = call.arg("zmq_handles")
    return {str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {}


def _call_of(history: History, address: str) -> Call | None:
    return next((c for c in history.calls(UPDATE) if address in _handles(c).values()), None)


def used_when_answered(history: History) -> Verdict:
    """No part of a buffer is written or freed between the message that names it and the worker's answer."""
    exercised = 0
    for address, notes in lines(history).items():
        told: list[Span] = []
        owed: list[Span] = []
        lent = back = False
        for note in notes:
            if note.name == "ipc_ask":
                lent, back = lent or note.get("kind") == "buffer", note.get("kind") in ("none", "stop")
                owed = [(int(a), int(b)) for a, b in note.get("spans", ())]
                told += owed
            elif note.name == "ipc_reply":
                owed, lent = [], lent and not back
            elif note.name == "ipc_fill":
                span = (int(note.get("start")), int(note.get("end")))
                exercised += any(_overlap(span, other) for other in told)
                if any(_overlap(span, other) for other in owed):
                    what = f"bytes {span[0]} to {span[1]} were filled again before the worker had answered for them"
                    return _wrong(note, what, "filled again after the answer", exercised)
            elif note.name == "ipc_free" and lent and _under_way(history, address, note.pos):
                return _wrong(note, "freed while the worker had it", "freed when the worker gave it back", exercised)
    return held(exercised)


def _under_way(history: History, address: str, pos: int) -> bool:
    call = _call_of(history, address)
    return call is not None and call.pos < pos < call.end_pos


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _wrong(note: Note, told: str, allowed: str, exercised: int) -> Verdict:
    return violated(allowed=[allowed], actual=told, where=str(note), exercised=exercised)


def own_device(part: Part, history: History) -> Finding | bool:
    """A handle for every rank, under the id of the device on which its trainer rank is."""
    calls = part.op(UPDATE)
    bound = {str(n.get("address")): n for n in history.trainer("ipc_line")}
    if not calls or not bound:
        return False
    for call in calls:
        handles = _handles(call)
        if len(handles) != tp(history, part.engine):
            allowed = f"a handle for each of {tp(history, part.engine)} ranks"
            return allowed, f"{len(handles)} handles", str(call)
        for uuid, address in handles.items():
            line = bound.get(address)
            if line is None or line.get("uuid") != uuid:
                where = "a socket that nobody bound" if line is None else f"the socket beside {line.get('uuid')}"
                return f"the socket beside {uuid}", where, str(call)
        gpus = {int(bound[address].get("gpu", -1)) for address in handles.values()}
        mine = set(gpus_of(history, part.engine))
        if mine and gpus != mine:
            return f"devices {sorted(mine)} of the engine", f"devices {sorted(gpus)}", str(call)
    return None


def no_session(part: Part, history: History) -> Finding | bool:
    """Workers finalise by themselves."""
    if not part.op(UPDATE):
        return False
    around = part.op("begin_weight_update", "end_weight_update")
    return ("no session around an update over IPC", around[0].op, str(around[0])) if around else None


def nobody_left_waiting(history: History) -> Verdict:
    """In a refit that failed every worker that came was let go: at its end, by a stop, or with its engine's call."""
    exercised = 0
    for refit in (r for r in history.refits() if r.ok is False):
        for address, notes in lines(history.during(refit)).items():
            asked = [n for n in notes if n.name == "ipc_ask"]
            if not any(n.name == "ipc_reply" for n in notes) or [n.get("kind") for n in asked][-2:] == ["none", "none"]:
                continue
            exercised += 1
            last = asked[-1]
            if last.get("kind") != "stop" and any(n.name == "ipc_reply" and n.pos > last.pos for n in notes):
                told = f"the worker at {address} had answered and was told nothing more"
                return _wrong(last, told, "a stop to every worker that came", exercised)
    return held(exercised)
