"""Suites, plants and the book of all rules: found through entry points, checked before anything runs.

The harness never imports a suite: `refitcheck.suites` names an object or a function without arguments that returns one;
`refitcheck.catalogues` the same for the plants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from harness.errors import BrokenBook, UsageError
from harness.explore.rules import INVARIANTS
from harness.rules import Rule, RuleBook
from harness.scenario import RELATION, Scenario
from harness.versions import version_matches


@dataclass(frozen=True)
class Plant:
    """One planted defect: a broken client or a lenient engine.

    `breaks` are the rules that must catch it. `origin` says where the defect was seen ("NVIDIA-NeMo/RL#3519", "D07").
    `apply()` is a context manager under which the defect is there: it patches classes of the reference client or of the
    fake; for target "client" it may yield a factory (no arguments, returns a `Sut`) that is used in place of the
    reference client. Plants live in process: lane fake only.
    """

    id: str
    target: Literal["client", "engine"]
    breaks: frozenset[str]
    origin: str
    apply: Callable[[], AbstractContextManager[Any]]
    text: str = ""


@dataclass(frozen=True)
class Suite:
    """Rules and the scenarios that exercise them."""

    name: str
    rules: tuple[Rule, ...]
    scenarios: tuple[Scenario, ...]


@dataclass
class Book(RuleBook):
    """All rules, scenarios, plants and mutants that are installed. Mutants are those of `harness.mutate`.

    `invariants` are the ids of those rules that only fault exploration judges. `proved`: a rule that nothing planted
    breaks is a defect of the book.
    """

    scenarios: dict[str, Scenario] = field(default_factory=dict)
    plants: dict[str, Plant] = field(default_factory=dict)
    mutants: dict[str, Any] = field(default_factory=dict)
    invariants: frozenset[str] = frozenset()
    proved: bool = False
    _suites: dict[str, str] = field(default_factory=dict)

    def add_suite(self, suite: Suite) -> None:
        """Take in one suite; ValueError when an id is taken."""
        self.add(suite.rules)
        self._suites |= {rule.id: suite.name for rule in suite.rules}
        for scenario in suite.scenarios:
            if scenario.id in self.scenarios:
                raise ValueError(f"scenario {scenario.id} is defined twice")
            self.scenarios[scenario.id] = scenario

    def add_invariants(self, rules: Iterable[Rule]) -> None:
        """Take in what exploration judges of every scenario that it may run; no rules where it may run none."""
        explored = [s for s in self.scenarios.values() if s.explore]
        if explored:
            mine = tuple(rules)
            self.add(mine)
            self.invariants = frozenset(rule.id for rule in mine)
            suite = next(iter(self._suites[rule] for s in explored for rule in sorted(s.rules)), "")
            self._suites |= {rule.id: suite for rule in mine}

    def rules_of(self, scenario: Scenario) -> frozenset[str]:
        """The rules that a scenario exercises: its own, and the invariants where exploration may run it."""
        return scenario.rules | self.invariants if scenario.explore else scenario.rules

    def add_plants(self, defects: Iterable[Any]) -> None:
        """Take in plants and mutants; ValueError when an id is taken."""
        for defect in defects:
            kept: dict[str, Any] = self.plants if isinstance(defect, Plant) else self.mutants
            if defect.id in self.plants or defect.id in self.mutants:
                raise ValueError(f"plant or mutant {defect.id} is defined twice")
            kept[defect.id] = defect

    def suite_of(self, rule_id: str) -> str:
        """The name of the suite that a rule came with."""
        return self._suites[rule_id]

    def scenarios_of(self, rule_id: str) -> list[Scenario]:
        """The scenarios that exercise a rule."""
        return [s for s in self.scenarios.values() if rule_id in self.rules_of(s)]

    def plants_of(self, rule_id: str) -> list[Plant]:
        """The plants that the rule must catch."""
        return [p for p in self.plants.values() if rule_id in p.breaks]

    def mutants_of(self, rule_id: str) -> list[Any]:
        """The mutants that the rule must catch."""
        return [m for m in self.mutants.values() if rule_id in m.breaks]

    def defects(self) -> list[str]:
        """What does not fit together, one line each: empty for a sound book."""
        return [*self._rule_defects(), *self._scenario_defects(), *self._plant_defects()]

    def _rule_defects(self) -> Iterable[str]:
        exercised = {rule for s in self.scenarios.values() for rule in self.rules_of(s)}
        for rule in self.rules.values():
            if rule.id not in exercised:
                yield f"rule {rule.id} has no scenario"
            if not rule.text.strip() or not rule.citations:
                yield f"rule {rule.id} has no text or no citation"
            for cause in (*rule.follows, *rule.echoes):
                if cause not in self.rules and rule.id not in self.invariants:  # they come without a suite, too
                    yield f"rule {rule.id} follows from rule {cause}, which does not exist"
            yield from _specifier_defect(f"rule {rule.id}", rule.versions)

    def _scenario_defects(self) -> Iterable[str]:
        for s in self.scenarios.values():
            if not s.rules:
                yield f"scenario {s.id} names no rule"
            for rule in sorted(s.rules - self.rules.keys()):
                yield f"scenario {s.id} names rule {rule}, which does not exist"
            if not RELATION.fullmatch(s.relation):
                yield (
                    f"scenario {s.id} does not say how it relates to the real engine: relation is {s.relation!r}, "
                    "not 'validated: <version> <yyyy-mm-dd>', 'fake only: <why>' or 'not yet: <why>'"
                )
            yield from _specifier_defect(f"scenario {s.id}", s.versions)

    def _plant_defects(self) -> Iterable[str]:
        for p in self.plants.values():
            if not p.breaks:
                yield f"plant {p.id} breaks no rule"
        if self.proved:
            yield from (f"rule {rule} has no planted defect and no mutant to catch" for rule in self._unproved())
        for kind, defects in (("plant", self.plants), ("mutant", self.mutants)):
            for defect in defects.values():
                for rule in sorted(defect.breaks - self.rules.keys()):
                    yield f"{kind} {defect.id} breaks rule {rule}, which does not exist"

    def _unproved(self) -> list[str]:
        """Rules that nothing planted breaks. The invariants come with the harness: all are proved, or none is."""
        broken = {rule for one in (*self.plants.values(), *self.mutants.values()) for rule in one.breaks}
        asked = self.rules.keys() if broken & self.invariants else self.rules.keys() - self.invariants
        return [rule for rule in self.rules if rule in asked and rule not in broken]


def _specifier_defect(owner: str, specifier: str) -> Iterable[str]:
    try:
        version_matches("0.0.0", specifier)
    except ValueError as error:
        yield f"{owner}: {error}"


def load_book(*, check: bool = True) -> Book:
    """All installed suites and plants. BrokenBook names every defect; UsageError an entry point that does not load."""
    book = Book(proved=True)
    try:
        for point in _points("refitcheck.suites"):
            book.add_suite(_made(point, Suite))
        book.add_invariants(INVARIANTS)
        for point in _points("refitcheck.catalogues"):
            book.add_plants(_made_many(point))
    except ValueError as error:
        raise BrokenBook(str(error)) from None
    if check and (defects := book.defects()):
        raise BrokenBook("\n".join(defects))
    return book


def _points(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda point: point.name)


def load_point(point: EntryPoint) -> Any:
    """Load one entry point; UsageError in one line when that fails."""
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"entry point {point.group}: {point.name} = {point.value} does not load: {error}") from error


def named_points(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group by name."""
    return {point.name: point for point in _points(group)}


def _made(point: EntryPoint, kind: type[Suite]) -> Suite:
    found = load_point(point)
    found = found if isinstance(found, kind) else _called(point, found)
    if not isinstance(found, kind):
        raise UsageError(f"entry point {point.group}: {point.name} = {point.value} gives no {kind.__name__}")
    return found


def _called(point: EntryPoint, found: Any) -> Any:
    try:
        return found()
    except (ImportError, AttributeError, TypeError) as error:
        raise UsageError(f"entry point {point.group}: {point.name} = {point.value} fails: {error}") from error


def _made_many(point: EntryPoint) -> list[Any]:
    found = load_point(point)
    plants = list(_called(point, found) if callable(found) else found)
    for plant in plants:
        if not all(hasattr(plant, name) for name in ("id", "breaks", "origin")):
            raise UsageError(
                f"entry point {point.group}: {point.name} = {point.value} gives {plant!r}, no plant or mutant"
            )
    return plants
