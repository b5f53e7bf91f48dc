"""Runs units: a scenario on a lane gives a history, and its rules judge it. Nothing here knows pytest or a terminal."""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from fakes.trace import Header, TraceWriter
from harness.bench import Bench
from harness.errors import Unsupported, UsageError
from harness.exits import check_ends
from harness.exits import outlived as outlived
from harness.explore.plans import plan as explored_plans
from harness.faults import Fault
from harness.gate import FaultGate
from harness.history import History
from harness.judgement import Judgement, hung_in, reason
from harness.lanes.base import EngineSpec, Lane
from harness.lanes.info import info_of
from harness.lanes.loader import load_lane
from harness.places import breaches_of, done_in
from harness.rules import unsupported
from harness.scenario import Scenario
from harness.settings import Settings
from harness.suites import Book, load_book
from harness.sut.loader import is_reference, load_sut
from harness.sut.protocol import Sut
from harness.units import Finding, Unit, UnitReport, invariants_judged, judged, worse
from harness.watchdog import VIGIL, Hung, watched
from harness.words import cut

KEPT = 4
"""Fault-free histories that are kept; units of one scenario follow one another."""
MOST_HANGS = 3
"""Of one client in one process, in scenarios of one family (refit/fleet): each costs its time, and the next ones teach
nothing."""
MOST_HANGS_IN_ALL = 8


WORDS_S = 5.0
"""Real seconds that an exception may take to say what it is."""


class Runner:
    """Executes units in this process. One lane serves them all; call `close` at the end.

    `widely`: what breaks is judged by all rules of the client's side too, for the order of findings.
    """

    def __init__(self, settings: Settings, book: Book | None = None, lane: Lane | None = None) -> None:
        self.settings = settings
        self.book = book if book is not None else load_book()
        self.lane = lane if lane is not None else load_lane(settings.lane, settings.lane_options)
        self.info = info_of(self.lane, settings.tp)
        self.tp = self.info.tp
        self.widely = False
        self.on_history: Callable[[Unit, tuple[Fault, ...], History], None] | None = None
        self._stack = ExitStack()
        self._planted: Callable[[], Sut] | None = None
        self._factories: dict[str, Callable[[], Sut]] = {}
        self._recorded: dict[Unit, History] = {}
        self._hangs: dict[str, list[str]] = {}
        self._judgement = Judgement(self.book, self.lane)
        self._plant()

    def _plant(self) -> None:
        if not self.settings.plant:
            return
        plant = self.book.plants.get(self.settings.plant)
        if plant is None:
            raise UsageError(
                f"no plant {self.settings.plant!r}; known: {', '.join(sorted(self.book.plants)) or 'none'}"
            )
        given = self._stack.enter_context(plant.apply())
        if plant.target == "client" and callable(given):
            self._planted = given

    def close(self) -> None:
        """Stop the lane and pull the plant out."""
        try:
            self.lane.close()
        finally:
            self._stack.close()

    # -- one history --------------------------------------------------------------------------------------------

    def run_once(
        self, scenario: Scenario, version: str, sut: str = "", faults: tuple[Fault, ...] = (), tp: int = 0
    ) -> History:
        """Run a scenario once. Unsupported when it says so; HarnessError when the lane or the scenario breaks."""
        spec = EngineSpec(version=version, tp=tp or self.tp, options=tuple(sorted(scenario.options.items())))
        missing = sorted(need for need in scenario.needs if need not in self.lane.provides)
        if missing:
            raise Unsupported(f"lane {self.lane.name} does not provide {', '.join(missing)}")
        trace = TraceWriter()
        gate = FaultGate(trace, self.lane.now, faults)
        factory = self._factory(sut) if sut else None
        bench = Bench(
            self.lane,
            gate,
            spec,
            seed=self.settings.seed,
            sut_factory=factory,
            sut_options=self._sut_options(),
            sut_name=sut,
            hang_timeout=self.settings.hang_timeout,
        )
        trace.write(self._header(scenario, spec, sut))
        expect = getattr(self.lane, "expect", None)
        if expect is not None:
            expect(scenario.needs)
        self.lane.begin(gate, self.settings.seed)
        if self.settings.death == "process" and sut:
            self.lane.on_death = fall  # type: ignore[attr-defined]  # a lane whose engines live in this process has it
        try:
            scenario.run(bench)
            bench.close_sut()
        except Hung:  # it stands in the history, which is judged as far as it goes
            records = list(trace.records)
            self._abandon(bench, sut)
        except BaseException:
            self._abandon(bench, sut)
            raise
        else:
            records = trace.records
        finally:
            if self.settings.death == "process" and sut:
                self.lane.on_death = None  # type: ignore[attr-defined]
            others = self.lane.finish()
        check_ends()
        return History.from_records(records, *others)

    def _abandon(self, bench: Bench, sut: str) -> None:
        """A client may hold processes and folders. The reference client and planted ones hold what is the lane's."""
        if self._planted is None and not is_reference(sut):
            bench.abandon_sut()

    def _factory(self, sut: str) -> Callable[[], Sut]:
        if self._planted is not None:
            return self._planted
        if sut not in self._factories:
            self._factories[sut] = load_sut(sut)
        return self._factories[sut]

    def _header(self, scenario: Scenario, spec: EngineSpec, sut: str) -> Header:
        meta: dict[str, Any] = {"scenario": scenario.id, "sut": sut, "policy": self.settings.policy}
        if self.settings.plant:
            meta["plant"] = self.settings.plant
        return Header(
            clock=self.lane.clock,
            lane=self.lane.name,
            engine_version=spec.version,
            tp=spec.tp,
            seed=self.settings.seed,
            meta=meta,
        )

    def _sut_options(self) -> dict[str, Any]:
        own = {"policy": self.settings.policy, "seed": self.settings.seed, "time_scale": self.info.scale}
        return {**self.settings.sut_options, **own}

    # -- one unit -----------------------------------------------------------------------------------------------

    def execute(self, unit: Unit) -> UnitReport:
        """Run one unit and judge it. Never raises for anything but usage: what breaks is in `error`."""
        report = UnitReport(unit)
        started = time.perf_counter()
        scenario = self.book.scenarios[unit.scenario]
        rules = judged(self.settings, self.book, scenario, unit.version)
        invariants = invariants_judged(self.settings, self.book, scenario)
        hangs = self._hangs.setdefault(unit.sut, [])
        try:
            if _enough(hangs, scenario):
                raise Unsupported(f"not run: the client hung {len(hangs)} times before, the last time in {hangs[-1]}")
            with outlived():
                self._run(unit, scenario, report)
        except UsageError:
            raise
        except Unsupported as lacks:
            for rule in (*rules, *invariants):
                report.findings.setdefault(rule.id, Finding(unsupported(str(lacks))))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            why, report.trace = words_of(error)
            report.error = f"scenario {unit.scenario}: {why}"
        report.seconds = time.perf_counter() - started
        return report

    def _run(self, unit: Unit, scenario: Scenario, report: UnitReport) -> None:
        rules = judged(self.settings, self.book, scenario, unit.version)
        invariants = invariants_judged(self.settings, self.book, scenario)
        for faults, history in self._histories(unit, scenario):
            report.runs += 1
            calls = history.calls(origin="sut")
            report.calls = max(report.calls, len(calls))
            report.fired |= {call.fault for call in calls if call.fault}
            if scenario.explore and not faults and not report.raised:
                report.raised = next((f"{r.error_type}: {r.error}" for r in history.refits() if not r.ok), "")
            if self.on_history is not None:
                self.on_history(unit, faults, history)
            clean = self._fault_free(unit, scenario) if invariants else None
            found = self._judgement.findings(rules, invariants, faults, history, clean)
            self._note(report, faults, found, history)
            for rule_id, finding in found.items():
                report.findings[rule_id] = worse(report.findings.get(rule_id), finding)
            report.policy = next((n.get("policy", "") for n in history.facts("caps", source="harness")), report.policy)
            hung = hung_in(history)
            if hung:
                report.hung = hung
                self._hangs[unit.sut].append(f"{scenario.id}: {hung}")
            if _enough(self._hangs[unit.sut], scenario):
                return

    def _note(
        self, report: UnitReport, faults: tuple[Fault, ...], found: Mapping[str, Finding], history: History
    ) -> None:
        """What of one history only all of them together tell."""
        places = {rule: finding.place for rule, finding in found.items() if finding.verdict.status != "unsupported"}
        if self.widely and not faults and any(places.values()):
            places |= self._judgement.beside(found, history)
        breaches = breaches_of(faults, places)
        report.breaches += [breaches] if breaches is not None else []
        report.refits += len(history.refits())
        report.done |= done_in(history)

    def _histories(self, unit: Unit, scenario: Scenario) -> Iterator[tuple[tuple[Fault, ...], History]]:
        def run(faults: tuple[Fault, ...]) -> History:
            return self.run_once(scenario, unit.version, unit.sut, faults, unit.tp)

        index, shards = unit.shard
        if not shards:
            faults = self.settings.faults
            yield faults, run(faults) if faults or not scenario.explore else self._fault_free(unit, scenario)
            return
        for faults in self._plan(self._fault_free(unit, scenario))[index::shards]:
            yield faults, run(faults)

    def _fault_free(self, unit: Unit, scenario: Scenario) -> History:
        """The fault-free history of a scenario that may be explored: run once, kept while its shards follow."""
        key = dataclasses.replace(unit, shard=(0, 0))
        if key not in self._recorded:
            while len(self._recorded) >= KEPT:
                del self._recorded[next(iter(self._recorded))]
            self._recorded[key] = self.run_once(scenario, unit.version, unit.sut, (), unit.tp)
        return self._recorded[key]

    def _plan(self, recorded: History) -> Sequence[tuple[Fault, ...]]:
        full = self.settings.exploration == "full" and self.lane.clock == "virtual"
        return explored_plans(recorded, engines=recorded.engines(), full=full, seed=self.settings.seed)


def _enough(hangs: Sequence[str], scenario: Scenario) -> bool:
    """Whether a client hung so often, in scenarios of this family or in all, that it is not asked again there."""
    family = scenario.id.rpartition("/")[0]
    return len(hangs) >= MOST_HANGS_IN_ALL or sum(h.startswith(f"{family}/") for h in hangs) >= MOST_HANGS


def fall(engine: str, cause: str) -> None:
    """The engine was part of the client's process: SIGKILL for all of it, as SGLang does; its parent is told why."""
    from fakes.fronts.caller import kill_this_process_tree

    for vigil in VIGIL:
        vigil.last_words(f"engine {engine} died of {cause}, and with it the client's process (--death process)")
    kill_this_process_tree()


def imported(name: str, limit: float) -> None:
    """Import a system under test within `limit` real seconds. UsageError for one that is none."""
    who = f"system under test {name!r}: importing it"
    try:
        with watched(limit, who):
            load_sut(name)
    except Hung as hung:
        raise UsageError(f"{who}: {hung}") from hung


def words_of(error: BaseException) -> tuple[str, str]:
    """An error on one line, and where it was raised. Its text, and those of what it came from, may be a client's."""
    why, where = type(error).__name__, ""
    try:
        with watched(WORDS_S, "the text of an exception"):
            why = reason(error)
            where = cut(traceback.format_exc())
    except Hung:
        pass  # as much as was said
    return why, where
