"""Makes a sequence that two engines answer differently as short as can be, step by step, on both of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from real_runs import sequence as s
from real_runs.comparing import differences
from real_runs.fuzz.draft import ABORT
from real_runs.fuzz.server_search import Found, comparable, kind
from real_runs.fuzz.sides import DTYPE, Side

TRIES = 60
"""How many smaller sequences are tried on the real side."""


def smallest(found: Found, real: Side, fake: Side, *, seconds: float = float("inf")) -> Found:
    """The same difference in fewer steps; `found` itself where none shows it again.

    First what comes after the difference goes, then halves of what is left, quarters, and so on to single steps.
    """
    until, tries = time.monotonic() + seconds, 0

    def differs(steps: Sequence[s.Step]) -> Found | None:
        nonlocal tries
        if tries == TRIES or time.monotonic() > until:
            return None
        tries += 1
        return _differs(found, steps, real, fake)

    steps = _cut(found)
    best = differs(steps)
    if best is None:
        return found
    size = len(steps) // 2
    while size >= 1:
        start = 0
        while start < len(steps):
            fewer = [*steps[:start], *steps[start + size :]]
            again = differs(fewer) if fewer else None
            if again is None:
                start += size
            else:
                best, steps = again, fewer
        size //= 2
    return best


def _cut(found: Found) -> list[s.Step]:
    """The steps up to the call that differs; of a call in the background up to its join."""
    steps, calls = found.sequence.steps, 0
    for end, step in enumerate(steps):
        calls += step.do in ("call", "start")
        if calls >= found.difference.number > 0:
            mine = [n for n, other in enumerate(steps) if other.label and other.label == step.label]
            return steps[: max([end, *mine]) + 1]
    return steps


def whole(steps: Sequence[s.Step]) -> list[s.Step]:
    """The steps without joins that have no start, and with an end for what was started and is not over."""
    started: list[str] = []
    out = []
    for step in steps:
        if step.do == "start":
            started.append(step.label)
        elif step.do == "join":
            if step.label not in started:
                continue
            started.remove(step.label)
        out.append(step)
    home = [s.CONTINUE, s.sleep(0.05), ABORT] if started else []
    return [*out, *home, *(s.join(label) for label in started)]


def _differs(found: Found, steps: Sequence[s.Step], real: Side, fake: Side) -> Found | None:
    fatal = found.sequence.fatal
    sequence = s.Sequence(name="drawn", about="made small", steps=whole(steps), fatal=fatal)
    expected = fake.perform(sequence)
    if any(answer.ending == "timeout" for answer in expected.answers) or expected.died != fatal:
        return None
    got = real.perform(sequence)
    first = next(iter(differences(*comparable(got, expected), DTYPE)), None)
    if first is None or kind(first) != found.kind:
        return None
    return Found(found.kind, sequence, first, got, expected, found.seed, found.count)
