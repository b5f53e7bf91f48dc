"""The exports of a history: what trainer ranks recorded of each, and the update call that carried it."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.view import BUCKET, payloads
from harness.history import Call, History, Note


@dataclass(frozen=True)
class Export:
    """One exported payload. `call` is the first update that carried it; `gone` are frees and reuses of its memory."""

    number: int
    note: Note
    consumers: tuple[tuple[str, int], ...]
    call: Call | None
    opened: tuple[Note, ...]
    released: tuple[Note, ...]
    gone: tuple[Note, ...]


def exports(history: History) -> list[Export]:
    """Every recorded export, in order."""
    carried: dict[str, Call] = {}
    for call in history.calls(BUCKET, origin="sut"):
        for payload in payloads(call):
            carried.setdefault(payload, call)
    opened, released = _by_export(history, "open"), _by_export(history, "release")
    gone: dict[int, list[Note]] = {}
    for note in (*history.trainer("free"), *history.trainer("reuse")):
        for number in note.get("exports", [note.get("export")]):
            gone.setdefault(int(number), []).append(note)
    out: list[Export] = []
    for note in history.trainer("export"):
        number = int(note.get("export", 0))
        consumers = tuple((str(engine), int(rank)) for engine, rank in note.get("consumers", ()))
        carrier = carried.get(str(note.get("sha256")))
        mine = (tuple(by.get(number, ())) for by in (opened, released, gone))
        out.append(Export(number, note, consumers, carrier, *mine))
    return out


@dataclass(frozen=True)
class Origin:
    """Who made a payload: the trainer rank, the engine and tp rank that it was made for, and the tensors in it."""

    rank: int
    engine: str
    tp_rank: int
    names: frozenset[str]


def origins(history: History) -> dict[str, Origin]:
    """Payload digest -> its origin, where the trainer said so and it was made for one consumer."""
    out: dict[str, Origin] = {}
    for note in history.trainer("export"):
        consumers = note.get("consumers", ())
        if len(consumers) == 1:
            names = frozenset(map(str, note.get("names", ())))
            out[str(note.get("sha256"))] = Origin(note.rank, str(consumers[0][0]), int(consumers[0][1]), names)
    return out


def gpus_of(history: History, engine: str) -> tuple[int, ...]:
    """The GPU of each tp rank of an engine, where the harness says so (fact `engine`); trainer rank r holds GPU r."""
    for note in history.facts("engine", source="harness", engine=engine):
        if note.get("gpus"):
            return tuple(note.get("gpus"))
    return ()


def _by_export(history: History, name: str) -> dict[int, list[Note]]:
    out: dict[int, list[Note]] = {}
    for note in history.trainer(name):
        out.setdefault(int(note.get("export", 0)), []).append(note)
    return out
