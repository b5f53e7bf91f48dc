"""What a history is made of, as judges see it: calls, notes, refits and canaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fakes.trace import Complete, Fact, Invoke, Origin, Trainer

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


def call_of(pos: int, record: Invoke, end: tuple[int, Complete] | None, length: int) -> Call:
    """One call out of its invoke at `pos` and its completion; without one it ends at `length`."""
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


def note_of(pos: int, record: Fact | Trainer, source: str, rank: int) -> Note:
    """One fact or trainer record at `pos`."""
    return Note(pos, record.t, record.engine, record.incarnation, source, record.name, record.data, rank)


def refit_of(start: Note, end: Note | None, length: int) -> Refit:
    """One refit out of its marks; without an end it ends at `length`."""
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
