"""Which faults to try: one plan for every call of the first refit and every kind of fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

from harness.faults import Fault
from harness.history import Call, History

Plan = tuple[Fault, ...]
Kind = Literal[
    "status400",
    "status500",
    "success_false",
    "drop_before",
    "drop_after",
    "hang",
    "delay",
    "die",
    "partial",
    "status500_after",
    "hang_after",
    "die_after",
]

DELAY_S = 5.0
"""Long enough to overtake what a client does next, short enough that no deadline is at stake: slow is not failed."""

SAMPLE = 12

_ONE: dict[Kind, Callable[[str, str, int], Fault]] = {
    "status400": lambda e, op, n: Fault(e, op, n, "before", "status400"),
    "status500": lambda e, op, n: Fault(e, op, n, "before", "status500"),
    "success_false": lambda e, op, n: Fault(e, op, n, "before", "success_false"),
    "drop_before": lambda e, op, n: Fault(e, op, n, "before", "drop"),
    "drop_after": lambda e, op, n: Fault(e, op, n, "after", "drop"),
    "hang": lambda e, op, n: Fault(e, op, n, "before", "hang"),
    "delay": lambda e, op, n: Fault(e, op, n, "before", "delay", DELAY_S),
    "die": lambda e, op, n: Fault(e, op, n, "before", "die"),
    "status500_after": lambda e, op, n: Fault(e, op, n, "after", "status500"),
    "hang_after": lambda e, op, n: Fault(e, op, n, "after", "hang"),
    "die_after": lambda e, op, n: Fault(e, op, n, "after", "die"),
}

KINDS: tuple[Kind, ...] = (*list(_ONE)[:8], "partial", *list(_ONE)[8:])
NINE: tuple[Kind, ...] = KINDS[:9]
"""The faults of the default exploration; the rest are the same with the effect on the other side."""


def plan(
    history: History,
    *,
    engines: Sequence[str] = (),
    full: bool = True,
    seed: int = 0,
    kinds: Sequence[Kind] = NINE,
) -> list[Plan]:
    """The plans for a fault-free `history`: every call of the client to `engines` (all by default) up to the end of the
    first refit, times `kinds`.

    "partial" makes every other engine of the fleet refuse where this one succeeds; a fleet of one has no such plan.
    full=False: a sample of 12, chosen by `seed`, every operation at least once if they suffice.
    """
    points = call_points(history, engines)
    peers = list(dict.fromkeys(engine for engine, _, _ in points))
    plans: list[Plan] = []
    for point in points:
        for kind in kinds:
            faults = _partial(point, points, peers) if kind == "partial" else (_ONE[kind](*point),)
            if faults:
                plans.append(faults)
    return plans if full else _sample(plans, seed)


def call_points(history: History, engines: Sequence[str] = ()) -> list[tuple[str, str, int]]:
    """(engine, op, nth) of every call of origin sut up to the end of the first refit; nth counts as the gate does."""
    refits = history.refits()
    end = refits[0].end_pos if refits else history.length
    counts: dict[tuple[str, str], int] = {}
    points: list[tuple[str, str, int]] = []
    for call in history.calls(origin="sut"):
        nth = counts[call.engine, call.op] = counts.get((call.engine, call.op), 0) + 1
        if call.pos < end and (not engines or call.engine in engines) and _is_control(call):
            points.append((call.engine, call.op, nth))
    return points


def _is_control(call: Call) -> bool:
    return call.op not in ("generate", "health", "health_generate")


def _partial(point: tuple[str, str, int], points: Sequence[tuple[str, str, int]], peers: Sequence[str]) -> Plan:
    engine, op, nth = point
    return tuple(
        Fault(other, op, nth, "before", "status500")
        for other in peers
        if other != engine and (other, op, nth) in points
    )


def _sample(plans: Sequence[Plan], seed: int) -> list[Plan]:
    rng = random.Random(seed)
    order = list(range(len(plans)))
    rng.shuffle(order)
    first_of: dict[str, int] = {}
    for i in order:
        first_of.setdefault(plans[i][0].op, i)
    picked = [*first_of.values(), *(i for i in order if i not in first_of.values())][:SAMPLE]
    return [plans[i] for i in sorted(picked)]
