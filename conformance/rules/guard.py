"""GUARD: what a client refuses when it is set up, and what decides how it sends."""

from __future__ import annotations

from conformance.rules.make import refit
from harness.history import History, Note
from harness.rules import Verdict, held, violated

TRANSPORTS = {
    "update_weights_from_tensor": "tensor",
    "update_weights_from_distributed": "distributed",
    "update_weights_from_disk": "disk",
    "update_weights_from_ipc": "ipc",
}


def _refusals(history: History, *, missing: bool) -> Verdict:
    """Every set-up that names a word is refused with it, and no call was made for it."""
    notes = history.facts("construct", source="harness")
    exercised = 0
    for at, note in enumerate(notes):
        word = str(note.get("names") or "")
        if not word or note.get("transport") is not None or ("missing" in note.data) is not missing:
            continue
        exercised += 1
        refused = str(note.get("refused") or "")
        if word not in refused:
            told = f"refused: {refused[:160]}" if refused else "set up without a word"
            return violated(allowed=[f"a refusal that names {word}"], actual=told, where=str(note), exercised=exercised)
        found = _called(history, notes, at)
        if found:
            told = f"refused, after {found}"
            return violated(allowed=["no call to any engine"], actual=told, where=str(note), exercised=exercised)
    return held(exercised)


def refused_by_name(history: History) -> Verdict:
    """Of set-ups whose keys are all there: each that names a word is refused with it, before any call."""
    return _refusals(history, missing=False)


def _called(history: History, notes: list[Note], at: int) -> str:
    """The first call of the client between the set-up before and this one, farewells of the former aside."""
    before = [n.pos for n in (*notes[:at], *history.facts("closing", source="harness")) if n.pos < notes[at].pos]
    mine = [c for c in history.calls(origin="sut") if max(before, default=-1) < c.pos < notes[at].pos]
    calls = [c for c in mine if not c.op.startswith("destroy")]
    return str(calls[0]) if calls else ""


def _by_the_table(history: History) -> Verdict:
    """A set-up that works sends by the transport that follows from it; one that contradicts itself is refused."""
    notes = history.facts("construct", source="harness")
    exercised = 0
    for at, note in enumerate(notes):
        expected = note.get("transport")
        if expected is None:
            continue
        exercised += 1
        until = notes[at + 1].pos if at + 1 < len(notes) else history.length
        refused = str(note.get("refused") or "")
        used = _used(history, note.pos, until)
        cell = {key: note.get("setup", {}).get(key) for key in ("colocated", "trainer", "transport")}
        if not expected:
            if not refused or used:
                told = f"{cell} was taken" + (f", and sent by {', '.join(used)}" if used else "")
                return violated(allowed=["a refusal"], actual=told, where=str(note), exercised=exercised)
            continue
        if refused or used != [expected]:
            told = f"{cell}: " + (f"refused: {refused[:120]}" if refused else f"sent by {', '.join(used) or 'nothing'}")
            return violated(allowed=[f"sent by {expected} alone"], actual=told, where=str(note), exercised=exercised)
    return held(exercised)


def _used(history: History, since: int, until: int) -> list[str]:
    """The transports by which anything was sent: receivers of a checkpoint engine post what they got as tensors."""
    calls = history.calls(TRANSPORTS, origin="sut")
    used = {TRANSPORTS[c.op] for c in calls if since < c.pos < until}
    if "tensor" in used and any(since < n.pos < until for n in history.trainer("nixl_transfer")):
        used = used - {"tensor"} | {"checkpoint-engine"}
    return sorted(used)


RULES = (
    refit(
        "GUARD-1",
        "A set-up that no transport can refit is refused by name before any engine is called.",
        refused_by_name,
        ["NVIDIA-NeMo/RL#3612", "managers/tokenizer_control_mixin.py:452@0.5.23"],
        mend="check transport, colocation and parallel sizes before the first call, and raise with the setting's name",
    ),
    refit(
        "GUARD-2",
        "Colocation, trainer and setting decide the transport; nothing falls back to another one.",
        _by_the_table,
        ["NVIDIA-NeMo/RL#3612", "NVIDIA-NeMo/RL#3330"],
        mend=(
            "look the transport up in one table of (colocated, trainer, setting), and raise where there is no entry; "
            "no except-and-fall-back"
        ),
    ),
    refit(
        "GUARD-3",
        "A missing key is never a default, a misspelt one never ignored.",
        lambda history: _refusals(history, missing=True),
        ["NVIDIA-NeMo/RL#3612"],
        mend="read required keys without a default, and refuse keys that nothing reads, by name",
    ),
)
