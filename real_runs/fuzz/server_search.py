"""Draws sequences of calls, performs each on both sides, and finds the shortest one that differs.

The fake goes first: it costs milliseconds and says whether a sequence kills. Those that do are counted apart, and only
`fatal` of them reach the real side, since each costs it a start. What hangs on the fake is left out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings

from real_runs import sequence as exchange_steps
from real_runs.comparing import Difference, Exchange, differences
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.sides import DTYPE, Side

CHUNK = 19
"""Sequences of one seed: few, since the first tenth of what hypothesis draws is as plain as can be."""
SMALLER = 60
"""How many smaller sequences are tried on the real side once something differs."""
NO_REPLY = frozenset({"timeout"})


@dataclass(frozen=True)
class Found:
    """The shortest sequence that was found to differ, and how."""

    sequence: exchange_steps.Sequence
    differences: tuple[Difference, ...]
    real: Exchange
    fake: Exchange
    seed: int


@dataclass
class Search:
    """What was done: calls and sequences on the real side, fatal ones among them, what was left out and why."""

    steps: int = 0
    sequences: int = 0
    fatal: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)


Explain = Callable[[exchange_steps.Sequence, Difference], str | None]


@dataclass(frozen=True)
class Limits:
    """At least `steps` calls; `fatal` sequences that kill; `longest` draws in one."""

    steps: int
    fatal: int = 0
    longest: int = 12


def hunt(
    vocabulary: ServerVocabulary,
    real: Side,
    fake: Side,
    limits: Limits,
    first_seed: int,
    *,
    explain: Explain = lambda sequence, difference: None,
    progress: Callable[[Search], None] = lambda search: None,
) -> Search:
    """Search until there were enough calls, or something differs that nothing explains."""
    search, began, number = Search(), time.monotonic(), first_seed
    while search.steps < limits.steps and not search.found:
        before = search.sequences + sum(search.left_out.values())
        _chunk(vocabulary, real, fake, limits, number, search, explain)
        search.seconds = time.monotonic() - began
        progress(search)
        number += 1
        if search.sequences + sum(search.left_out.values()) == before:
            break
    return search


def _chunk(
    vocabulary: ServerVocabulary,
    real: Side,
    fake: Side,
    limits: Limits,
    number: int,
    search: Search,
    explain: Explain,
) -> None:
    @seed(number)
    @settings(
        max_examples=CHUNK,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(vocabulary.strategy(limits.longest))
    def one(numbers: list[int]) -> None:
        if search.found or search.steps >= limits.steps:
            return
        sequence = vocabulary.sequence(numbers)
        tried = _try(sequence, real, fake, search, limits, explain)
        if tried is not None:
            draws = _smallest(numbers, vocabulary, real, fake, explain)
            smallest = vocabulary.sequence(draws)
            again = _compared(smallest, real, fake, explain)
            chosen = (smallest, *again) if again[0] else (sequence, *tried)
            search.found.append(Found(*chosen, seed=number))

    one()


def _try(
    sequence: exchange_steps.Sequence, real: Side, fake: Side, search: Search, limits: Limits, explain: Explain
) -> tuple[tuple[Difference, ...], Exchange, Exchange] | None:
    expected = fake.perform(sequence)
    if any(answer.ending in NO_REPLY for answer in expected.answers):
        search.left_out["hangs"] += 1
        return None
    if expected.died:
        if search.fatal >= limits.fatal:
            search.left_out["kills"] += 1
            return None
        search.fatal += 1
        sequence = msgspec.structs.replace(sequence, fatal=True)
    got = real.perform(sequence)
    search.sequences += 1
    search.steps += len(got.answers)
    search.cells.update(cells(got))
    found = differences(got, expected, DTYPE)
    known = explain(sequence, found[0]) if found else None
    if known is not None:
        search.explained[known] += 1
    return (tuple(found), got, expected) if found and known is None else None


def _compared(
    sequence: exchange_steps.Sequence, real: Side, fake: Side, explain: Explain
) -> tuple[tuple[Difference, ...], Exchange, Exchange]:
    expected, got = fake.perform(sequence), real.perform(sequence)
    found = differences(got, expected, DTYPE)
    if found and explain(sequence, found[0]) is not None:
        found = []  # what comes after a known difference is its consequence
    return tuple(found), got, expected


def _smallest(
    numbers: Sequence[int], vocabulary: ServerVocabulary, real: Side, fake: Side, explain: Explain
) -> list[int]:
    """Draws taken out one after the other, as long as something differs."""
    kept, tries, index = list(numbers), 0, 0
    while index < len(kept) and len(kept) > 1 and tries < SMALLER:
        fewer = [*kept[:index], *kept[index + 1 :]]
        tries += 1
        if _compared(vocabulary.sequence(fewer), real, fake, explain)[0]:
            kept = fewer
        else:
            index += 1
    return kept


def cells(done: Exchange) -> list[tuple[str, str]]:
    """The (operation, state) cells that a sequence went through, its state followed by the answers."""
    steps = msgspec.convert(done.data["steps"], list[exchange_steps.Step])
    answers = iter(done.answers)
    session = released = False
    pause, traffic, found = "free", "idle", []
    for step in steps:
        if step.do == "join":
            traffic = "idle"
        if step.do not in ("call", "start"):
            continue
        answer = next(answers)
        state = f"{pause} {traffic}, {'open' if session else 'closed'}{', released' if released else ''}"
        found.append((step.op, state))
        good = answer.status == 200
        if step.op == "begin_weight_update" and good:
            session = True
        elif step.op == "end_weight_update" and good:
            session = False
        elif step.op == "pause_generation" and good:
            pause = str(step.body.get("mode", "abort"))
            traffic = (
                "idle" if pause == "abort" else "queued" if traffic == "running" and pause == "retract" else traffic
            )
        elif step.op == "continue_generation" and good:
            pause, traffic = "free", "running" if traffic != "idle" else "idle"
        elif step.do == "start":
            traffic = "running" if pause == "free" else "queued" if traffic == "idle" else traffic
        elif step.op in ("release_memory_occupation", "resume_memory_occupation") and good:
            released = step.op == "release_memory_occupation"
    return found
