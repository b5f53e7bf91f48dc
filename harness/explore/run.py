"""Running an exploration: `run(faults)` makes a new world and gives its history, whatever the adapter is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.explore.invariants import Broken, check
from harness.explore.plans import NINE, Kind, Plan, plan
from harness.faults import faults_text
from harness.history import History

Run = Callable[[Plan], History]


@dataclass(frozen=True)
class Explored:
    """One run: its faults, its history and the invariants that it broke."""

    faults: Plan
    history: History
    broken: tuple[Broken, ...]

    @property
    def reproduce(self) -> str:
        """What `--fault` takes to run it again; "" for the fault-free run."""
        return faults_text(self.faults)


def explore(
    run: Run, *, engines: Sequence[str] = (), full: bool = True, seed: int = 0, kinds: Sequence[Kind] = NINE
) -> Iterator[Explored]:
    """The fault-free run first, then one run for every plan made from it, judged by the invariants as they come."""
    recorded = run(())
    yield Explored((), recorded, tuple(check(recorded, recorded)))
    for faults in plan(recorded, engines=engines, full=full, seed=seed, kinds=kinds):
        history = run(faults)
        yield Explored(faults, history, tuple(check(history, recorded)))
