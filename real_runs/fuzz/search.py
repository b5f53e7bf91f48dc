"""Draws sequences, plays each on both sides, and finds the shortest one that differs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from real_runs.fuzz.drawing import draw
from real_runs.fuzz.steps import Answer, Step

CHUNK = 500
"""Sequences that one seed draws; the next chunk has the next seed."""
Play = Callable[[list[Step]], list[Answer]]


@dataclass(frozen=True)
class Divergence:
    """The shortest sequence that the two answer differently, its last step being the one that differs."""

    steps: tuple[Step, ...]
    real: tuple[Answer, ...]
    fake: tuple[Answer, ...]
    seed: int

    @property
    def what(self) -> dict[str, tuple[Any, Any]]:
        """Field by field: what the real one says, what the fake says."""
        one, other = self.real[-1], self.fake[-1]
        return {key: (one.get(key), other.get(key)) for key in {**one, **other} if one.get(key) != other.get(key)}


@dataclass
class Found:
    """What a search did: steps and sequences played, how many ended in death, cells reached, what differs."""

    steps: int = 0
    sequences: int = 0
    deaths: int = 0
    seconds: float = 0.0
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    divergences: list[Divergence] = field(default_factory=list)


Explain = Callable[[Sequence[Step], Answer, Answer], str | None]
"""(steps up to and with the one that differs, real answer, fake answer) -> the id of a known difference, or None."""


class _Differs(Exception):
    pass


def first_difference(real: Sequence[Answer], fake: Sequence[Answer]) -> int | None:
    """The index of the first step whose answers differ."""
    for index in range(max(len(real), len(fake))):
        if index >= len(real) or index >= len(fake) or real[index] != fake[index]:
            return index
    return None


def search(
    strategy: st.SearchStrategy[list[Step]],
    real: Play,
    fake: Play,
    *,
    steps: int,
    first_seed: int,
    explain: Explain = lambda steps, real, fake: None,
    cells: Callable[[list[Step], list[Answer]], list[tuple[str, str]]] = lambda steps, answers: [],
    progress: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Play at least `steps` steps on both sides, or stop at the first divergence that nothing explains.

    A sequence ends with the first exception, and with the first known difference: what comes after is not comparable.
    The same seed draws the same sequences, whatever was drawn on this machine before.
    """
    found, began, number = Found(), time.monotonic(), first_seed
    while found.steps < steps and not found.divergences:
        _chunk(strategy, real, fake, found, steps, number, explain, cells)
        found.seconds = time.monotonic() - began
        progress(found)
        number += 1
    return found


def _chunk(
    strategy: st.SearchStrategy[list[Step]],
    real: Play,
    fake: Play,
    found: Found,
    steps: int,
    number: int,
    explain: Explain,
    cells: Callable[[list[Step], list[Answer]], list[tuple[str, str]]],
) -> None:
    shortest: list[Divergence] = []

    def play(drawn: list[Step]) -> None:
        if found.steps >= steps and not shortest:
            return
        one, other = real(drawn), fake(drawn)
        at = first_difference(one, other)
        if not shortest:  # while it shrinks nothing counts
            done = drawn[: len(one)]
            found.steps += len(done)
            found.sequences += 1
            found.deaths += bool(one) and "raised" in one[-1]
            found.cells.update(cells(done, one))
        if at is None:
            return
        left = one[at] if at < len(one) else {"missing": True}
        right = other[at] if at < len(other) else {"missing": True}
        known = explain(drawn[: at + 1], left, right)
        if known is not None:
            found.explained[known] += 1
            return
        shortest.append(Divergence(tuple(drawn[: at + 1]), (*one[:at], left), (*other[:at], right), number))
        raise _Differs

    try:
        draw(strategy, number, CHUNK, play, shrink=True)
    except _Differs:
        found.divergences.append(reduced(shortest[-1], real, fake, explain))


def reduced(found: Divergence, real: Play, fake: Play, explain: Explain) -> Divergence:
    """The same difference without the steps that it does not need: hypothesis leaves a few now and then."""
    what = set(found.what)
    index = 0
    while index < len(found.steps) - 1:
        steps = [*found.steps[:index], *found.steps[index + 1 :]]
        one, other = real(steps), fake(steps)
        at = first_difference(one, other)
        if at == len(steps) - 1 == len(one) - 1 == len(other) - 1 and explain(steps, one[at], other[at]) is None:
            smaller = Divergence(tuple(steps), tuple(one), tuple(other), found.seed)
            if set(smaller.what) == what:
                found = smaller
                continue
        index += 1
    return found
