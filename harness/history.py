"""A whole scenario as a judge sees it: calls, facts and trainer records in one order.

A `History` is immutable; every query returns records in the order in which they happened. `pos` is a record's place in
that order: `a.end_pos < b.pos` means that call `a` had ended, for its caller, before `b` left. Judges compare `pos`,
never times; `t` (seconds of the header's clock) is for texts and for rules about waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fakes.trace import AnyRecord, Fact, Header, Invoke, Origin, Trainer
from harness.happenings import Call, Canary, Ended, Note, Refit, call_of, note_of, refit_of
from harness.merging import completions, merge

__all__ = ["Call", "Canary", "Ended", "History", "Note", "Refit"]


@dataclass(frozen=True)
class History:
    """Calls and notes in one order; see the module's text. Made by `from_records` or `history_files.read_history`.

    `placed` are the records with their `pos`; `length` is one past the last `pos` of the whole history, also in a part.
    """

    header: Header
    placed: tuple[tuple[int, AnyRecord], ...]
    calls_: tuple[Call, ...]
    notes_: tuple[Note, ...]
    length: int
    _index: dict[tuple[str, str], list[Any]] = field(default_factory=dict, repr=False, compare=False)

    # -- making one ---------------------------------------------------------------------------------------------

    @classmethod
    def from_records(cls, *writers: Iterable[AnyRecord]) -> History:
        """Merge the records of several writers and pair invokes with completions.

        The first header found describes the history. MalformedHistory where no header is, where a completion has no
        invoke, where a call begins or ends twice, or where a writer's sequence numbers do not grow.
        """
        header, merged = merge(writers)
        return _paired(header, merged)

    # -- queries ------------------------------------------------------------------------------------------------

    @property
    def records(self) -> tuple[AnyRecord, ...]:
        """The records in order, without headers."""
        return tuple(record for _, record in self.placed)

    def calls(
        self,
        op: str | Collection[str] | None = None,
        *,
        origin: Origin | None = None,
        engine: str | None = None,
        incarnation: int | None = None,
        outcome: Ended | None = None,
        where: Callable[[Call], bool] | None = None,
    ) -> list[Call]:
        """Calls by operation (one or several), origin, engine, incarnation and outcome, in order of their invokes."""
        found: Iterable[Call]
        if isinstance(op, str):
            found = self._by("op", op)
        elif op is not None:
            wanted = frozenset(op)
            found = (c for c in self.calls_ if c.op in wanted)
        else:
            found = self.calls_
        return [
            c
            for c in found
            if (origin is None or c.origin == origin)
            and (engine is None or c.engine == engine)
            and (incarnation is None or c.incarnation == incarnation)
            and (outcome is None or c.outcome == outcome)
            and (where is None or where(c))
        ]

    def facts(
        self, name: str | None = None, *, source: str | None = None, engine: str | None = None, **data: Any
    ) -> list[Note]:
        """Facts of core, probe and harness; `data` are fields that must be equal: facts("memory", released=[])."""
        found = self._by("note", name) if name is not None else self.notes_
        return [
            n
            for n in found
            if n.source != "trainer"
            and (source is None or n.source == source)
            and (engine is None or n.engine == engine)
            and all(n.data.get(k) == v for k, v in data.items())
        ]

    def trainer(self, name: str | None = None, *, rank: int | None = None, **data: Any) -> list[Note]:
        """What trainer ranks recorded."""
        found = self._by("note", name) if name is not None else self.notes_
        return [
            n
            for n in found
            if n.source == "trainer"
            and (rank is None or n.rank == rank)
            and all(n.data.get(k) == v for k, v in data.items())
        ]

    def engines(self) -> list[str]:
        """Names of the engines that were called or spoken of, in order of appearance."""
        return list(dict.fromkeys(item.engine for item in self.timeline() if item.engine))

    def incarnations(self, engine: str) -> list[int]:
        """Incarnations of one engine, in order of appearance."""
        return list(dict.fromkeys(item.incarnation for item in self.timeline() if item.engine == engine))

    def timeline(self) -> list[Call | Note]:
        """Everything in order; a call stands at its invoke."""
        items: list[Call | Note] = [*self.calls_, *self.notes_]
        return sorted(items, key=lambda item: item.pos)

    def refits(self) -> list[Refit]:
        """The refits of the system under test, from the harness's facts "refit" of phase start and end."""
        marks = self.facts("refit", source="harness")
        ends = {n.data["index"]: n for n in marks if n.data["phase"] == "end"}
        return [refit_of(n, ends.get(n.data["index"]), self.length) for n in marks if n.data["phase"] == "start"]

    def canaries(self, engine: str | None = None) -> list[Canary]:
        """The canaries, in order: each pairs the harness's facts "expected" and "answer" of one label."""
        answers = {(n.engine, n.data["canary"]): n for n in self.facts("answer", source="harness")}
        out: list[Canary] = []
        for n in self.facts("expected", source="harness", engine=engine):
            answer = answers.get((n.engine, n.data["canary"]))
            told = answer.data if answer else {}
            out.append(
                Canary(
                    pos=n.pos,
                    end_pos=answer.pos if answer else self.length,
                    t=n.t,
                    engine=n.engine,
                    label=str(n.data["label"]),
                    seed=n.data.get("seed"),
                    prompt=tuple(n.data.get("prompt", ())),
                    expected=_tuple(n.data.get("tokens")),
                    expected_logprobs=_tuple(n.data.get("logprobs")),
                    tokens=_tuple(told.get("tokens")),
                    logprobs=_tuple(told.get("logprobs")),
                    outcome=str(told.get("outcome", "open")),
                    weight_version=told.get("weight_version"),
                )
            )
        return out

    def barriers(self) -> list[Note]:
        """The scenario's barriers."""
        return self.facts("barrier", source="harness")

    def between(self, start: int | Call | Note | Refit, end: int | Call | Note | Refit) -> History:
        """What began after `start` (a call: after its end) and before `end` (a refit: before its end)."""
        low = start if isinstance(start, int) else start.end_pos if isinstance(start, Call) else start.pos
        high = end if isinstance(end, int) else end.end_pos if isinstance(end, Refit) else end.pos
        return self._part(lambda item: low < item.pos < high)

    def during(self, refit: Refit) -> History:
        """What began while `refit` was under way."""
        return self.between(refit, refit)

    def only(self, engine: str) -> History:
        """One engine's calls and notes, with the notes that belong to no engine."""
        return self._part(lambda item: item.engine in (engine, ""))

    def without_core(self) -> History:
        """The same history as a black box shows it: every fact of source core is gone."""
        return self._part(lambda item: not isinstance(item, Note) or item.source != "core")

    def _part(self, keep: Callable[[Call | Note], bool]) -> History:
        calls = tuple(c for c in self.calls_ if keep(c))
        notes = tuple(n for n in self.notes_ if keep(n))
        kept = {c.pos for c in calls} | {c.end_pos for c in calls} | {n.pos for n in notes}
        return History(self.header, tuple(p for p in self.placed if p[0] in kept), calls, notes, self.length)

    def has(self, need: str) -> bool:
        """Whether records of this kind occur: "call", "core:flush", "probe:weights", "trainer:export", ..."""
        if need == "call":
            return bool(self.calls_)
        source, _, name = need.partition(":")
        return any(n.source == source for n in self._by("note", name))

    def _by(self, kind: str, key: str) -> list[Any]:
        if not self._index:
            index: dict[tuple[str, str], list[Any]] = {("", ""): []}
            for call in self.calls_:
                index.setdefault(("op", call.op), []).append(call)
            for note in self.notes_:
                index.setdefault(("note", note.name), []).append(note)
            self._index.update(index)
        return self._index.get((kind, key), [])


def _tuple(value: Any) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)


def _paired(header: Header, records: Sequence[AnyRecord]) -> History:
    length = len(records)
    ends = completions(records)
    calls: list[Call] = []
    notes: list[Note] = []
    for pos, record in enumerate(records):
        if isinstance(record, Invoke):
            calls.append(call_of(pos, record, ends.get(record.call), length))
        elif isinstance(record, Fact):
            notes.append(note_of(pos, record, record.source, 0))
        elif isinstance(record, Trainer):
            notes.append(note_of(pos, record, "trainer", record.rank))
    return History(header, tuple(enumerate(records)), tuple(calls), tuple(notes), length)
