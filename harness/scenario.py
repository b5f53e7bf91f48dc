"""Scenarios: what is done so that rules can be judged. They act and never judge; the history is judged afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from harness.rules import Side
from harness.versions import version_matches

if TYPE_CHECKING:
    from harness.bench import Bench

RELATION = re.compile(r"validated: ?\S+ \d{4}-\d{2}-\d{2}|(?:fake only|not yet): ?\S.*")


@dataclass(frozen=True)
class Scenario:
    """One scenario.

    `rules` are the ids whose preconditions it exercises: their judges see its history.
    `relation` to the real engine: "validated: <version> <yyyy-mm-dd>", "fake only: <why>" or "not yet: <why>".
    `fatal`: it kills an engine on purpose (the real lane runs few of these). `versions` as in `harness.versions`.
    `lanes`: names of the lanes that can run it; empty for all. `needs`: what of `Lane.provides` it needs.
    `options`: launch options of its engines, under SGLang's names. `explore`: fault exploration may run it with faults
    planted into every call of the client.
    """

    id: str
    rules: frozenset[str]
    run: Callable[[Bench], None]
    relation: str
    side: Side = "engine"
    fatal: bool = False
    min_tp: int = 1
    versions: str = ""
    lanes: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    explore: bool = False

    def fits(self, version: str, tp: int, lane: str) -> bool:
        """Whether it says anything about this engine on this lane."""
        return version_matches(version, self.versions) and tp >= self.min_tp and (not self.lanes or lane in self.lanes)


class ScenarioList(list[Scenario]):
    """Collects a module's scenarios; `scenarios.add(...)` decorates the function that acts.

    The id is `<prefix>/<function name with dashes>`. `needs` are those of every scenario of the list.
    """

    def __init__(self, prefix: str, *, side: Side = "engine", needs: Collection[str] = ()) -> None:
        super().__init__()
        self.prefix = prefix
        self.side = side
        self.needs = frozenset(needs)

    def add(
        self, *rules: str, relation: str, needs: Collection[str] = (), lanes: Collection[str] = (), **rest: Any
    ) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
        """Register the decorated function as a scenario of `rules`; `rest` are further fields of Scenario."""

        def register(run: Callable[[Bench], None]) -> Callable[[Bench], None]:
            name = getattr(run, "__name__", "scenario").replace("_", "-")
            self.append(
                Scenario(
                    id=f"{self.prefix}/{name}",
                    rules=frozenset(rules),
                    run=run,
                    relation=relation,
                    side=rest.pop("side", self.side),
                    needs=self.needs | frozenset(needs),
                    lanes=frozenset(lanes),
                    **rest,
                )
            )
            return run

        return register
