"""A whole scenario as a judge sees it: calls, facts and trainer records in one order.

A `History` is immutable; every query returns records in the order in which they happened. `pos` is a record's place in
that order: `a.end_pos < b.pos` means that call `a` had ended, for its caller, before `b` left. Judges compare `pos`,
never times; `t` (seconds of the header's clock) is for texts and for rules about waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fakes.trace import AnyRecord, Complete, Fact, Header, Invoke, Origin, Trainer
from harness.errors import MalformedHistory

Ended = Literal["ok", "fail", "indefinite", "open"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its invoke and its completion.

    `outcome` is "open" while nobody learned the end (`end_pos` is then past the last record, `end_t` is inf).
    `fault` is what the gate did to it ("" for nothing): `delivered` and `tampered` read it.
    """

    pos: int
    end_pos: int
    id: int
    engine: str
    incarnation: int
    origin: Origin
    op: str
    method: str
    request: Any
    fault: str
    t: float
    end_t: float
    outcome: Ended
    status: int | None = None
    body: Any = None
    error: str = ""

    @property
    def ok(self) -> bool:
        """Ended with a 200 that does not say success=false."""
        return self.outcome == "ok"

    @property
    def delivered(self) -> bool:
        """Whether the engine saw it: false where the gate kept it back."""
        return ":before:" not in self.fault or ":delay" in self.fault

    @property
    def tampered(self) -> bool:
        """Whether the caller was told something other than what the engine said."""
        return bool(self.fault) and ":delay" not in self.fault

    @property
    def message(self) -> str:
        """What the caller was told, as text."""
        if self.outcome in ("indefinite", "open"):
            return self.error or self.outcome
        if isinstance(self.body, Mapping):
            error = self.body.get("error")
            nested = error.get("message") if isinstance(error, Mapping) else error
            return str(self.body.get("message") or nested or dict(self.body))
        return "" if self.body is None else str(self.body)

    def arg(self, name: str, default: Any = None) -> Any:
        """A field of the request body."""
        return self.request.get(name, default) if isinstance(self.request, Mapping) else default

    def answer(self, name: str, default: Any = None) -> Any:
        """A field of the reply's body."""
        return self.body.get(name, default) if isinstance(self.body, Mapping) else default

    def before(self, other: Call | Note) -> bool:
        """Whether it had ended before `other` began."""
        return self.end_pos < other.pos

    def overlaps(self, other: Call) -> bool:
        """Whether there was a moment at which both were under way."""
        return self.pos < other.end_pos and other.pos < self.end_pos

    def __str__(self) -> str:
        """`t=1.250 e0 POST /end_weight_update -> 400`."""
        end = str(self.status) if self.status is not None else self.outcome
        return f"t={self.t:.3f} {self.engine} {self.method} /{self.op} -> {end}"


@dataclass(frozen=True, slots=True)
class Note:
    """One fact or one trainer record; `source` is core, probe or harness for a fact, "trainer" for a trainer record."""

    pos: int
    t: float
    engine: str
    incarnation: int
    source: str
    name: str
    data: Mapping[str, Any]
    rank: int = 0

    def get(self, name: str, default: Any = None) -> Any:
        """A field of `data`."""
        return self.data.get(name, default)

    def __str__(self) -> str:
        """`t=1.250 e0 core:flush`."""
        return f"t={self.t:.3f} {self.engine or 'trainer'} {self.source}:{self.name}"


@dataclass(frozen=True, slots=True)
class Refit:
    """One refit by the system under test, between the harness's markers.

    `ok` is None while it has not ended. `version` and `seed` are what the policy held (`seed` makes the weights; see
    `Lane.weights`). `error_type` and `error` are those of the exception that `refit()` raised.
    """

    index: int
    pos: int
    end_pos: int
    t: float
    end_t: float
    ok: bool | None
    version: str
    seed: int | None
    error_type: str
    error: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Canary:
    """One canary: a fixed unique prompt, what a clean engine with the weights of `seed` answers, and the actual answer.

    `tokens` and `expected` are None where there was no answer or nothing is known. Logprobs are those of the output
    tokens, in nat.
    """

    pos: int
    end_pos: int
    t: float
    engine: str
    label: str
    seed: int | None
    prompt: tuple[int, ...]
    expected: tuple[int, ...] | None
    expected_logprobs: tuple[float, ...] | None
    tokens: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None
    outcome: str
    weight_version: str | None

    def matches(self, atol: float = 1e-3) -> bool | None:
        """Whether tokens agree, and logprobs within `atol` nat where known; None where a side has no tokens."""
        if self.tokens is None or self.expected is None:
            return None
        if self.tokens != self.expected:
            return False
        if self.logprobs is None or self.expected_logprobs is None:
            return True
        pairs = zip(self.logprobs, self.expected_logprobs, strict=False)
        return all(abs(a - b) <= atol for a, b in pairs)


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
        return [_refit(n, ends.get(n.data["index"]), self.length) for n in marks if n.data["phase"] == "start"]

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


def _refit(start: Note, end: Note | None, length: int) -> Refit:
    told = end.data if end else {}
    return Refit(
        index=start.data["index"],
        pos=start.pos,
        end_pos=end.pos if end else length,
        t=start.t,
        end_t=end.t if end else float("inf"),
        ok=bool(told["ok"]) if end else None,
        version=str(start.data.get("version", "")),
        seed=start.data.get("seed"),
        error_type=str(told.get("error_type", "")),
        error=str(told.get("error", "")),
        data={**start.data, **told},
    )


def merge(writers: Iterable[Iterable[AnyRecord]]) -> tuple[Header, list[AnyRecord]]:
    """Merge writers by time, keeping each writer's own order: the first header, and the records without headers.

    Within a writer the order of writing is the order of happening, and `seq` must grow per (engine, incarnation).
    Between writers only the clock can tell: `meta["epoch"]` of a writer's header (seconds of a clock that all share;
    0 if missing) plus `t` times `meta["scale"]` (shared seconds per second of the trace; 1 if missing).
    """
    headers: list[Header] = []
    keyed: list[tuple[float, int, int, AnyRecord]] = []
    for number, records in enumerate(writers):
        epoch, scale, latest = 0.0, 1.0, float("-inf")
        seen: dict[tuple[str, int], int] = {}
        for place, record in enumerate(records):
            key = (record.engine, record.incarnation)
            if record.seq <= seen.get(key, 0):
                raise MalformedHistory(
                    f"record {place + 1} of writer {number + 1}: seq {record.seq} of engine {record.engine!r} "
                    f"incarnation {record.incarnation} after seq {seen.get(key, 0)}"
                )
            seen[key] = record.seq
            if isinstance(record, Header):
                headers.append(record)
                epoch, scale = _number(record, "epoch", 0.0), _number(record, "scale", 1.0)
                continue
            latest = max(latest, epoch + record.t * scale)
            keyed.append((latest, number, place, record))
    if not headers:
        raise MalformedHistory("no header record: a history begins with one")
    keyed.sort(key=lambda item: item[:3])
    return headers[0], [item[3] for item in keyed]


def _number(header: Header, name: str, default: float) -> float:
    value = header.meta.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedHistory(f"header: meta.{name} is {value!r}, not a number")
    return float(value)


def _paired(header: Header, records: Sequence[AnyRecord]) -> History:
    length = len(records)
    ends: dict[int, tuple[int, Complete]] = {}
    begun: set[int] = set()
    for pos, record in enumerate(records):
        if isinstance(record, Invoke):
            if record.call in begun:
                raise MalformedHistory(f"call {record.call} (/{record.op}) begins twice")
            begun.add(record.call)
        elif isinstance(record, Complete):
            if record.call not in begun:
                raise MalformedHistory(f"call {record.call} ends but never began")
            if record.call in ends:
                raise MalformedHistory(f"call {record.call} ends twice")
            ends[record.call] = (pos, record)
    calls: list[Call] = []
    notes: list[Note] = []
    for pos, record in enumerate(records):
        if isinstance(record, Invoke):
            calls.append(_call(pos, record, ends.get(record.call), length))
        elif isinstance(record, Fact):
            notes.append(_note(pos, record, record.source, 0))
        elif isinstance(record, Trainer):
            notes.append(_note(pos, record, "trainer", record.rank))
    return History(header, tuple(enumerate(records)), tuple(calls), tuple(notes), length)


def _call(pos: int, record: Invoke, end: tuple[int, Complete] | None, length: int) -> Call:
    done = end[1] if end else None
    return Call(
        pos=pos,
        end_pos=end[0] if end else length,
        id=record.call,
        engine=record.engine,
        incarnation=record.incarnation,
        origin=record.origin,
        op=record.op,
        method=record.method,
        request=record.request,
        fault=record.fault,
        t=record.t,
        end_t=done.t if done else float("inf"),
        outcome=done.outcome if done else "open",
        status=done.status if done else None,
        body=done.body if done else None,
        error=done.error if done else "",
    )


def _note(pos: int, record: Fact | Trainer, source: str, rank: int) -> Note:
    return Note(pos, record.t, record.engine, record.incarnation, source, record.name, record.data, rank)
