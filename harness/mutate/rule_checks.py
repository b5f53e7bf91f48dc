"""Rule judgements as checks: a scenario run in process gives a history, and the rules that it exercises judge it.

One check is one history: scenario, engine version, and for the refit side also the system under test, its policy and
the faults planted into its calls. The fault plans are those of the unmutated client.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from packaging.version import Version

from harness.errors import Unsupported, UsageError
from harness.explore import plan
from harness.explore import rules as invariants
from harness.faults import Fault, faults_text
from harness.history import History
from harness.lanes.loader import load_lane
from harness.mutate.checks import Check, Finding
from harness.mutate.files import load_object, users_code
from harness.runner import Runner
from harness.scenario import Scenario
from harness.settings import Settings, exploration_of, named, policy_of, split_engines
from harness.suites import Book, Suite, load_book
from harness.sut.loader import load_sut
from harness.sut.protocol import Sut
from harness.units import judged
from harness.versions import version_matches

planted: list[Callable[[], Sut]] = []
"""A system under test that a mutant of this process puts in place of the one asked for; the last one counts."""


class RuleCheck:
    """One history and its judges."""

    def __init__(self, runner: Runner, scenario: Scenario, version: str, sut: str, faults: tuple[Fault, ...]) -> None:
        self._runner, self._scenario, self._version, self._sut, self._faults = runner, scenario, version, sut, faults
        self._rules = judged(runner.settings, runner.book, scenario, version)
        self.tp = max(runner.tp, scenario.min_tp)
        self.rules = frozenset(rule.id for rule in self._rules)
        self.path = inspect.getsourcefile(scenario.run) or ""
        where = " ".join(filter(None, (version, f"tp{self.tp}", sut, runner.settings.policy if sut else "")))
        self.id = f"{scenario.id} [{where}]" + (f" {faults_text(faults)}" if faults else "")

    @property
    def faulted(self) -> str:
        """The operation whose call the first fault hits, or ""."""
        return self._faults[0].op if self._faults else ""

    def run(self) -> list[Finding]:
        """Run the scenario and judge; one finding for each violated rule."""
        runner = self._runner
        try:
            history = self.history(self._faults)
        except Unsupported:
            return []
        found = []
        for rule in self._rules:
            verdict = runner._judgement.verdict(rule, history)
            if verdict.status == "violated":
                found.append(Finding(rule.id, f"{verdict.actual} ({verdict.where})"))
        return found

    def history(self, faults: tuple[Fault, ...]) -> History:
        """The scenario with these faults. Unsupported when it says so."""
        if planted:
            self._runner._planted = planted[-1]
        return self._runner.run_once(self._scenario, self._version, self._sut, faults, self.tp)


class ExploredCheck(RuleCheck):
    """One faulted history beside the fault-free one of its scenario, under the same mutant: the invariants judge."""

    def __init__(self, runner: Runner, scenario: Scenario, version: str, sut: str, faults: tuple[Fault, ...]) -> None:
        super().__init__(runner, scenario, version, sut, faults)
        self._wanted = frozenset(r for r in runner.book.invariants if runner.settings.wants(r))
        self.rules = self._wanted
        self.id = f"explored {self.id}"

    def run(self) -> list[Finding]:
        """Run the scenario and judge; one finding for each invariant that does not hold."""
        key = (os.getpid(), self._scenario.id, self._version, self._sut)
        try:
            if key not in _fault_free:
                _fault_free.clear()
                _fault_free[key] = self.history(())
            found = invariants.verdicts(self.history(self._faults), _fault_free[key])
        except Unsupported:
            return []
        broken = {rule: v for rule, v in found.items() if rule in self._wanted and v.status == "violated"}
        return [Finding(rule, f"{v.actual} ({v.where})") for rule, v in broken.items()]


_fault_free: dict[tuple[int, str, str, str], History] = {}
"""By process: a mutant must not be judged beside what the unmutated client did."""


class RuleChecks:
    """All checks of a run of rules."""

    def __init__(self, runners: Sequence[Runner], checks: list[Check]) -> None:
        self.checks = checks
        self._runners = runners

    def enter(self) -> None:
        """Nothing to prepare: every scenario makes its own world."""

    def close(self) -> None:
        """Stop the lane."""
        for runner in self._runners:
            runner.close()


def host(described: dict[str, Any], only: frozenset[str] = frozenset()) -> RuleChecks:
    """Make the checks. Keys, all optional: engine ("fake:0.5.23,0.5.21"; without it every scenario runs on the newest
    version that each of its rules speaks of), suts, policies, rules, rule_files, side ("engine", "refit" or both),
    breaks (only scenarios of these rules), exploration (off, sample or full).
    """
    book = book_with(described.get("rule_files", ()))
    for name in described.get("rules", ()):
        if not any(named(rule, (name,)) for rule in book.rules):
            raise UsageError(f"no rule or family {name!r}; see refitcheck list")
    for rule in sorted(set(described.get("breaks", ())) - book.rules.keys()):
        raise UsageError(f"a mutant breaks rule {rule}, which does not exist")
    lane = load_lane("fake", {})
    engine = described.get("engine") or ""
    versions = split_engines(engine, lane.versions, lane.kind) if engine else ()  # type: ignore[attr-defined]  # of its class
    suts = tuple(described.get("suts") or ("reference",))
    side = described.get("side") or ""
    if side != "engine":
        for name in suts:
            load_sut(name)
    runners: list[Runner] = []
    checks: list[Check] = []
    for number, policy in enumerate(described.get("policies") or ("resume",)):
        settings = Settings(
            versions=versions or tuple(lane.versions),  # type: ignore[attr-defined]  # of its class
            suts=suts,
            policy=policy_of(policy),
            rules=tuple(described.get("rules", ())),
            exploration=exploration_of(described.get("exploration") or "off"),
        )
        runner = Runner(settings, book, lane)
        runners.append(runner)
        sides = {"engine", "refit"} if not side else {side}
        if number:
            sides.discard("engine")  # an engine has no policy
        breaks = frozenset(described.get("breaks", ()))
        checks += _checks(runner, sides, breaks, newest=not versions)
        if not number and breaks & book.invariants and settings.exploration == "off":
            checks += _explored(runner, sides)
    if not checks:
        raise UsageError("no scenario exercises any of the rules asked for")
    return RuleChecks(runners, checks)


def book_with(files: Sequence[str]) -> Book:
    """The installed rules and scenarios, and those of a user's files: each holds a `suite`, or a function for it."""
    book = load_book()
    for text in files:
        found = load_object(text, "suite")
        with users_code(text, text):
            made = found() if callable(found) else found
            if not isinstance(made, Suite):
                raise UsageError(f"{text}: its suite is no harness.suites.Suite")
            book.add_suite(made)
            defects = replace(book, proved=False).defects()
        if defects:
            raise UsageError(f"{text}: {defects[0]}")
    return book


def _checks(runner: Runner, sides: set[str], breaks: frozenset[str], *, newest: bool) -> list[Check]:
    settings = runner.settings
    out: list[Check] = []
    for scenario in runner.book.scenarios.values():
        if scenario.side not in sides or (breaks and not runner.book.rules_of(scenario) & breaks):
            continue
        tp = max(runner.tp, scenario.min_tp)
        fitting = [v for v in settings.versions if scenario.fits(v, tp, runner.lane.name)]
        for version in _newest(runner.book, scenario, fitting) if newest else fitting:
            if not judged(settings, runner.book, scenario, version):
                continue
            for sut in settings.suts if scenario.side == "refit" else ("",):
                out.append(RuleCheck(runner, scenario, version, sut, ()))
                if scenario.explore and sut and settings.exploration != "off":
                    plans = _plans(runner, scenario, version, sut, tp)
                    out += [RuleCheck(runner, scenario, version, sut, faults) for faults in plans]
    return out


def _explored(runner: Runner, sides: set[str]) -> list[Check]:
    """Three faults for every call of each explored scenario of one engine: enough for what breaks an invariant."""
    out: list[Check] = []
    for scenario in runner.book.scenarios.values():
        tp = max(runner.tp, scenario.min_tp)
        fitting = sorted((v for v in runner.settings.versions if scenario.fits(v, tp, runner.lane.name)), key=_age)
        if not scenario.explore or scenario.side not in sides or not fitting:
            continue
        for sut in runner.settings.suts:
            try:
                recorded = runner.run_once(scenario, fitting[0], sut, (), tp)
            except Unsupported:
                continue
            if len(recorded.engines()) == 1:
                plans = plan(recorded, kinds=("status500", "drop_after", "hang"))
                out += [ExploredCheck(runner, scenario, fitting[0], sut, faults) for faults in plans]
    return out


def _newest(book: Book, scenario: Scenario, versions: Sequence[str]) -> list[str]:
    """Of the versions the fewest such that every rule of the scenario is judged on the newest one that it speaks of."""
    ordered = sorted(versions, key=_age)
    wanted = set()
    for rule in scenario.rules:
        wanted |= set([v for v in ordered if version_matches(v, book.rules[rule].versions)][:1])
    return [v for v in ordered if v in wanted]


def _age(version: str) -> tuple[int, ...]:
    """Sorts newest first; a build without a number comes last."""
    if not version[:1].isdigit():
        return (1,)
    return (0, *(-n for n in Version(version).release))


def _plans(runner: Runner, scenario: Scenario, version: str, sut: str, tp: int) -> Sequence[tuple[Fault, ...]]:
    """The fault plans of one scenario, spread: the first fault of every call, then the second of every call, ..."""
    try:
        recorded = runner.run_once(scenario, version, sut, (), tp)
    except Unsupported:
        return ()
    plans = list(runner._plan(recorded))
    turn: dict[tuple[str, str, int], int] = {}
    keyed = []
    for n, faults in enumerate(plans):
        call = (faults[0].engine, faults[0].op, faults[0].nth)
        turn[call] = turn.get(call, -1) + 1
        keyed.append((turn[call], n))
    return [plans[n] for _, n in sorted(keyed)]
