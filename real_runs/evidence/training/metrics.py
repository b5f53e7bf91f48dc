"""metrics.json: one object per series, steps as decimal keys, finite numbers; nothing twice, nothing in between."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from harness.words import quoted

NAME = "metrics.json"
LOSS, GATE, REWARD = "train/loss", "train/token_mult_prob_error", "train/reward"
TOKENS, GRADIENTS = "train/global_valid_toks", "train/grad_norm"
SHOWN = 5  # steps that a message names
_STEP = re.compile(r"0|[1-9][0-9]{0,8}")

Series = Mapping[int, float]


class BadMetrics(Exception):
    """It is no file of metrics; one line."""


def parsed(data: bytes) -> dict[str, dict[str, Any]]:
    """Series by name, values as they stand. BadMetrics for what is no object of objects, or names anything twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) < len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise BadMetrics(f"{NAME}: {quoted(twice, 60)} is there twice")
        return out

    try:
        found = json.loads(data, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise BadMetrics(f"{NAME}: {quoted(error, 100)}") from None
    if not isinstance(found, dict) or not all(isinstance(series, dict) for series in found.values()):
        raise BadMetrics(f"{NAME} is no object of series")
    return found


def problems(name: str, given: Mapping[str, Any] | None, steps: int) -> Iterator[str]:
    """Why a series is not one finite number for every step from 1 to `steps`, and for no other."""
    if given is None:
        yield f"{NAME}: no series {name}"
        return
    known: set[int] = set()
    for key, value in given.items():
        if not _STEP.fullmatch(key):
            yield f"{NAME}: {name}: {quoted(key, 30)} is no step"
            continue
        known.add(int(key))
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{NAME}: {name} at step {key} is {quoted(value, 30)}, no number"
        elif not _finite(value):
            yield f"{NAME}: {name} at step {key} is {quoted(value, 30)}, not finite"
    beyond = sorted(step for step in known if not 1 <= step <= steps)
    missing = steps - len(known) + len(beyond)
    if missing:  # only as far as they are told: how many steps there were to be is somebody's word
        first = islice((step for step in range(1, steps + 1) if step not in known), SHOWN)
        yield f"{NAME}: {name} has no step {_few(list(first), missing)} of {steps}"
    if beyond:
        yield f"{NAME}: {name} has step {_few(beyond, len(beyond))}, the run was to have steps 1 to {steps}"


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def numbers(given: Mapping[str, Any]) -> dict[int, float]:
    """A series without problems, by step."""
    return {int(step): float(value) for step, value in sorted(given.items(), key=lambda item: int(item[0]))}


def windows(series: Series, width: int) -> list[float]:
    """Means of `width` steps each; the last window may be shorter."""
    values = [series[step] for step in sorted(series)]
    return [math.fsum(part) / len(part) for part in (values[i : i + width] for i in range(0, len(values), width))]


def _few(steps: list[int], count: int) -> str:
    return ", ".join(map(str, steps[:SHOWN])) + (f" and {count - SHOWN} more" if count > SHOWN else "")
