"""`--replay FOLDER`: which mutants of the fake engine do histories recorded from the real engine show?

A mutant that no recording shows must be listed with the lane that would show it: entry points `refitcheck.elsewhere`
are mappings of mutant id to "lane: reason". The listed ones are run with `--everything` alone, since they meet every
recording; one that a recording shows after all is stale then.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points

from harness.errors import UsageError
from harness.mutate import reach
from harness.mutate.mutant import DETECTED, Mutant
from harness.mutate.plan import Outcome
from harness.mutate.source import submodules
from harness.suites import load_point

FAKES = "fakes"
RULE = "RECORDED"
"""What every mutant is held to here: the fake answers what the real engine answered."""


def engine_side(mutants: Iterable[Mutant]) -> list[Mutant]:
    """The mutants of the fake engine, each declared to break what was recorded."""
    return [
        dataclasses.replace(m, breaks=frozenset({RULE}))
        for m in mutants
        if m.target.startswith(("fakes.engine", "engine:"))
    ]


def places(mutants: Sequence[Mutant]) -> dict[str, tuple[str, ...]]:
    """The functions of the fake that each of them changes, as `reach.places` says."""
    for name in submodules(FAKES):  # what a plant imports first cannot be compared
        importlib.import_module(name)
    return reach.places(mutants, FAKES)


def of_the_fake(mutants: Iterable[Mutant], places: Mapping[str, Sequence[str]]) -> list[Mutant]:
    """Without those that change nothing of the fake engine: what reads a run's evidence is planted like it."""
    found = [m for m in mutants if places.get(m.id) != ()]
    if not found:
        raise UsageError("none of these mutants changes the fake engine")
    return found


def elsewhere() -> dict[str, str]:
    """Which lane would show a mutant that no recording shows."""
    out: dict[str, str] = {}
    for point in sorted(entry_points(group="refitcheck.elsewhere"), key=lambda p: p.name):
        out |= load_point(point)
    return out


def settle(outcome: Outcome, listed: Mapping[str, str], *, whole: bool) -> None:
    """Give what no recording shows its lane, and name stale entries; `whole`: every mutant was run."""
    for result in outcome.results:
        if result.id not in listed:
            continue
        if result.verdict in DETECTED:
            outcome.stale.append(f"{result.id}: listed as shown elsewhere, but {result.by} shows it")
        elif result.verdict in ("survived", "not covered"):
            result.verdict, result.detail = "elsewhere", listed[result.id]
    if whole:
        known = {result.id for result in outcome.results}
        outcome.stale += [f"{name}: listed as shown elsewhere, but no such mutant" for name in listed.keys() - known]
