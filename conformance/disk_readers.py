"""Who may still be reading a folder that an engine was told of, as far as calls show.

Rank 0 alone answers a disk update, and no barrier follows the load (managers/scheduler_components/
weight_updater.py:138@0.5.23; the same in every version). The other ranks take requests in the same order
(scheduler_components/request_receiver.py:206@0.5.23), so a later call in which all ranks meet proves that each of them
had done with the load:

generate                    every layer's all-reduce (layers/linear.py); a token that came out
begin, end_weight_update    a barrier, where they succeed (weight_updater.py:320, 334@0.5.23)
update_weights_from_tensor  a barrier (weight_updater.py:262@0.5.23; 105 of the mixin of 0.5.12.post1)
update_weights_from_ipc     a barrier, also after a failure (weight_updater.py:286@0.5.23)
release, resume of weights  a barrier (weight_updater.py:373, 398@0.5.23)
weights_checker, checksum   gathered from all ranks since 0.5.17 (weight_updater.py:441@0.5.23)

A flush, a pause, a health check (any message of the scheduler will do) or another disk update is rank 0's word again.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.view import died, tags_of, tp
from harness.history import Call, History, Note
from harness.versions import version_matches

UPDATE = "update_weights_from_disk"
BARRIERS = ("begin_weight_update", "end_weight_update", "update_weights_from_tensor", "update_weights_from_ipc")
MEMORY = ("release_memory_occupation", "resume_memory_occupation")


def readers(history: History, call: Call, pos: int) -> tuple[str, str] | None:
    """What would have been allowed and who may still read at `pos` the folder that `call` named; None for nobody."""
    if call.end_pos > pos:
        return "kept until every reader has answered", f"removed before {call} had an end"
    if _gone(history, call, pos) or _closing(history, pos):
        return None
    speaks = _answered(history, call, pos)
    if speaks is None:
        return "kept until every reader has answered", f"removed before {call} had an end"
    if tp(history, call.engine) == 1 or not speaks.delivered or any(together(history, speaks, pos)):
        return None
    told = f"removed after {call}, the word of rank 0: nothing had shown that the other ranks were done"
    return "kept until a call in which all ranks meet has come back, as a generated token", told


def _answered(history: History, call: Call, pos: int) -> Call | None:
    """The call whose answer tells that rank 0 has done with this one: itself, or a later one that succeeded."""
    if call.outcome in ("ok", "fail"):
        return call
    later = [c for c in history.calls(UPDATE, engine=call.engine) if c.pos > call.pos and c.ok and c.end_pos < pos]
    return next((c for c in later if c.incarnation == call.incarnation), None)


def together(history: History, after: Call, pos: int) -> Iterator[Call]:
    """Calls that left after `after` had ended, came back before `pos`, and that no rank is left out of."""
    for call in history.calls(engine=after.engine, incarnation=after.incarnation):
        if after.before(call) and call.end_pos < pos and call.ok and not call.tampered and _meets(history, call):
            yield call


def _meets(history: History, call: Call) -> bool:
    if call.op == "generate":
        return (call.answer("meta_info") or {}).get("completion_tokens") != 0
    if call.op == "weights_checker":
        checks = call.arg("action", "checksum") == "checksum"
        return checks and version_matches(history.header.engine_version, ">=0.5.17")
    return call.op in BARRIERS or (call.op in MEMORY and "weights" in tags_of(call))


def _gone(history: History, call: Call, pos: int) -> bool:
    """Whether this incarnation had ended: the engine cut or refused a connection, or there was a later one."""
    if died(call):
        return True
    others = history.calls(engine=call.engine)
    ended = any(died(c) for c in others if c.incarnation == call.incarnation and c.end_pos < pos)
    items: list[Call | Note] = [*others, *history.facts("born", source="harness", engine=call.engine)]
    return ended or any(item.incarnation > call.incarnation and item.pos < pos for item in items)


def _closing(history: History, pos: int) -> bool:
    return any(n.pos < pos for n in history.facts("closing", source="harness"))
