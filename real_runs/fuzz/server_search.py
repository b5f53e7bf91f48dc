"""Draws sequences of calls, performs each on both sides, and keeps what differs; the run goes on.

The fake goes first: it costs milliseconds and says whether a sequence kills or hangs. Those are not drawn by chance but
apart, `fatal` of them, since each costs the real side a start. What is drawn depends on the seed and on the cells that
were reached before, nothing else.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from real_runs import sequence as exchange_steps
from real_runs.comparing import Answer, Difference, Exchange, differences
from real_runs.fuzz.cells import Cell
from real_runs.fuzz.drawing import draw
from real_runs.fuzz.server_cells import operation
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.sides import DTYPE, FakeSide, Side
from real_runs.fuzz.steps import WIDTH
from real_runs.fuzz.tape import Tape, Taped

CHUNK = 12
"""Sequences of one seed; the next chunk has the next seed."""
Kind = tuple[str, str, str, str]


@dataclass
class Found:
    """A difference, in the first sequence that showed it up to that call; `count` sequences did."""

    kind: Kind
    sequence: exchange_steps.Sequence
    difference: Difference
    real: Exchange
    fake: Exchange
    seed: int
    count: int = 1


@dataclass
class Search:
    """What was done: calls and sequences on the real side, fatal ones among them, what was left out and why."""

    steps: int = 0
    sequences: int = 0
    fatal: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    cells: Counter[Cell] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    found: dict[Kind, Found] = field(default_factory=dict)


Explain = Callable[[exchange_steps.Sequence, Difference], str | None]


@dataclass(frozen=True)
class Limits:
    """At least `steps` calls that were compared, in at most `seconds`; `fatal` sequences that kill; `longest` draws in
    one."""

    steps: int
    fatal: int = 0
    longest: int = 40
    seconds: float = float("inf")


class Hunt:
    """One run. What the tape holds is judged first, then new sequences are drawn."""

    def __init__(
        self,
        vocabulary: ServerVocabulary,
        real: Side,
        fake: FakeSide,
        limits: Limits,
        *,
        explain: Explain = lambda sequence, difference: None,
        progress: Callable[[Search], None] = lambda search: None,
        tape: Tape | None = None,
    ) -> None:
        self._words, self._real, self._fake, self._limits = vocabulary, real, fake, limits
        self._explain, self._progress = explain, progress
        self._tape = Tape() if tape is None else tape
        self._began = time.monotonic()
        self.search = Search()

    def run(self, first_seed: int) -> Search:
        """Until there were enough calls, or the time is over."""
        number = first_seed
        for entry in self._tape.entries:
            self._judge(entry)
            if not entry.fatal:
                number = max(number, entry.seed + 1)
        self._told()
        while self.search.steps < self._limits.steps and not self._late:
            before = self.search.sequences + sum(self.search.left_out.values())
            self._chunk(number)
            self._told()
            number += 1
            if self.search.sequences + sum(self.search.left_out.values()) == before:
                break
        self._kill(first_seed)
        self._told()
        return self.search

    @property
    def _late(self) -> bool:
        return time.monotonic() - self._began > self._limits.seconds

    def _told(self) -> None:
        self.search.seconds = sum(entry.seconds for entry in self._tape.entries)
        self._progress(self.search)

    def _chunk(self, number: int) -> None:
        def one(numbers: list[int]) -> None:
            if self.search.steps >= self._limits.steps or self._late:
                return
            missing = [cell for cell in self._words.cells if cell not in self.search.cells]
            self._try(self._words.sequence(numbers, missing), number)

        draw(self._words.strategy(self._limits.longest), number, CHUNK, one)

    def _kill(self, number: int) -> None:
        """Sequences that kill, each drawn by a number of its own."""
        some = Random(number)
        for _ in range(4 * self._limits.fatal):
            if self.search.fatal >= self._limits.fatal or self._late:
                return
            sequence = self._words.fatal(some.randrange(WIDTH))
            if not any(entry.fatal and entry.sequence == sequence for entry in self._tape.entries):
                self._try(sequence, number, fatal=True)

    def _try(self, sequence: exchange_steps.Sequence, number: int, *, fatal: bool = False) -> None:
        expected = self._fake.perform(sequence)
        if any(answer.ending == "timeout" for answer in expected.answers):
            self.search.left_out["hangs"] += 1
        elif expected.died != fatal:
            self.search.left_out["lives" if fatal else "kills"] += 1
        else:
            began = time.monotonic()
            got = self._real.perform(sequence)
            entry = Taped(
                seed=number,
                sequence=sequence,
                answers=list(got.answers),
                died=got.died,
                fatal=fatal,
                seconds=round(time.monotonic() - began, 3),
            )
            self._tape.add(entry)
            self._judge(entry, expected)

    def _judge(self, entry: Taped, expected: Exchange | None = None) -> None:
        search = self.search
        real = entry.exchange
        if expected is None:
            expected = self._fake.perform(entry.sequence)
        search.sequences += 1
        search.fatal += entry.fatal
        found = differences(*comparable(real, expected), DTYPE)
        states = self._fake.states
        if not found:
            search.steps += len(real.answers)
            search.cells.update(zip(map(operation, real.answers), states, strict=True))
            return
        first = found[0]
        same = max(first.number - 1, 0)
        if ran_out(real, expected):
            search.left_out["traffic ran out"] += 1
            same = min(same, next(n for n, pair in enumerate(_pairs(real, expected)) if _ran_out(*pair)))
        else:
            known = self._explain(entry.sequence, first)
            if known is not None:
                search.explained[known] += 1
            else:
                self._note(Found(kind(first), entry.sequence, first, real, expected, entry.seed))
        search.steps += same
        search.cells.update([*zip(map(operation, real.answers), states, strict=False)][:same])

    def _note(self, found: Found) -> None:
        before = self.search.found.setdefault(found.kind, found)
        if before is not found:
            before.count += 1


def hunt(
    vocabulary: ServerVocabulary, real: Side, fake: FakeSide, limits: Limits, first_seed: int, **more: Any
) -> Search:
    """One run: see `Hunt`."""
    return Hunt(vocabulary, real, fake, limits, **more).run(first_seed)


def kind(difference: Difference) -> Kind:
    """What makes two differences the same finding."""
    return difference.op, difference.what, _short(difference.real), _short(difference.fake)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else type(value).__name__ if isinstance(value, list | dict) else repr(value)
    return text[:60]


def _pairs(real: Exchange, fake: Exchange) -> list[tuple[Answer, Answer]]:
    return list(zip(real.answers, fake.answers, strict=False))


def comparable(real: Exchange, fake: Exchange) -> tuple[Exchange, Exchange]:
    """Both. Where the end of a stream holds its last token only, which depends on how far it had come, and on whether
    an abort met it in the queue, only its ending is compared."""
    pairs = [
        tuple(replace(answer, compare="ending") for answer in pair)
        if all(map(_single, pair)) or any(map(_cut, pair))
        else pair
        for pair in _pairs(real, fake)
    ]
    if len(pairs) != len(real.answers) or len(pairs) != len(fake.answers):
        return real, fake
    return replace(real, answers=tuple(p[0] for p in pairs)), replace(fake, answers=tuple(p[1] for p in pairs))


def _cut(answer: Answer) -> bool:
    """Whether it has fewer tokens than came."""
    return _end(answer) == "abort" and bool(
        len(answer.body["output_ids"]) < answer.body["meta_info"]["completion_tokens"]
    )


def _single(answer: Answer) -> bool:
    """Whether it is one token, which may stand for more."""
    return _end(answer) == "abort" and len(answer.body["output_ids"]) == 1


def ran_out(real: Exchange, fake: Exchange) -> bool:
    """Whether a generation that was to be aborted came to its end on one side: that machine was too slow, or too
    fast, and nothing that comes after it can be compared."""
    return any(_ran_out(*pair) for pair in _pairs(real, fake))


def _ran_out(real: Answer, fake: Answer) -> bool:
    return real.op == "generate" and {_end(real), _end(fake)} == {"abort", "length"}


def _end(answer: Answer) -> Any:
    reason = answer.body.get("meta_info", {}).get("finish_reason") if isinstance(answer.body, Mapping) else None
    return reason.get("type") if isinstance(reason, Mapping) else None


__all__ = ["Found", "Hunt", "Limits", "Search", "hunt", "kind", "ran_out"]
