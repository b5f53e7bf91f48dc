"""Runs units: a scenario on a lane gives a history, and its rules judge it. Nothing here knows pytest or a terminal."""

from __future__ import annotations

import dataclasses
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

from fakes.trace import Header, TraceWriter
from harness.bench import Bench
from harness.errors import HarnessError, RefitcheckError, Unsupported, UsageError
from harness.explore import rules as explored_rules
from harness.faults import Fault
from harness.gate import FaultGate
from harness.history import History
from harness.lanes.base import EngineSpec, Lane
from harness.lanes.info import info_of
from harness.lanes.loader import load_lane
from harness.rules import Rule, Verdict, unsupported
from harness.scenario import Scenario
from harness.settings import Settings
from harness.suites import Book, load_book
from harness.sut.loader import load_sut
from harness.sut.protocol import Sut
from harness.units import Finding, Unit, UnitReport, invariants_judged, judged, worse

Plan = Callable[..., Sequence[tuple[Fault, ...]]]
KEPT = 4
"""Fault-free histories that are kept; units of one scenario follow one another."""


class Runner:
    """Executes units in this process. One lane serves them all; call `close` at the end."""

    def __init__(self, settings: Settings, book: Book | None = None, lane: Lane | None = None) -> None:
        self.settings = settings
        self.book = book if book is not None else load_book()
        self.lane = lane if lane is not None else load_lane(settings.lane, settings.lane_options)
        self.info = info_of(self.lane, settings.tp)
        self.tp = self.info.tp
        self.on_history: Callable[[Unit, tuple[Fault, ...], History], None] | None = None
        self._stack = ExitStack()
        self._planted: Callable[[], Sut] | None = None
        self._factories: dict[str, Callable[[], Sut]] = {}
        self._recorded: dict[Unit, History] = {}
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
        )
        trace.write(self._header(scenario, spec, sut))
        self.lane.begin(gate, self.settings.seed)
        try:
            scenario.run(bench)
            bench.close_sut()
        finally:
            others = self.lane.finish()
        return History.from_records(trace.records, *others)

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
        return {"policy": self.settings.policy, "seed": self.settings.seed}

    # -- one unit -----------------------------------------------------------------------------------------------

    def execute(self, unit: Unit) -> UnitReport:
        """Run one unit and judge it. Never raises for anything but usage: what breaks is in `error`."""
        report = UnitReport(unit)
        started = time.perf_counter()
        scenario = self.book.scenarios[unit.scenario]
        rules = judged(self.settings, self.book, scenario, unit.version)
        invariants = invariants_judged(self.settings, self.book, scenario)
        try:
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
            report.error = f"scenario {unit.scenario}: {_one_line(error)}"
            report.trace = traceback.format_exc()
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
            found = {rule.id: self._judge(rule, history) for rule in rules}
            if invariants:
                every = explored_rules.verdicts(history, self._fault_free(unit, scenario))
                found |= {rule.id: every[rule.id] for rule in invariants}
            for rule_id, verdict in found.items():
                report.findings[rule_id] = worse(report.findings.get(rule_id), Finding(verdict, faults))

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
        from harness import explore

        plan: Plan = explore.plan  # type: ignore[attr-defined]
        full = self.settings.exploration == "full" and self.lane.clock == "virtual"
        return plan(recorded, engines=recorded.engines(), full=full, seed=self.settings.seed)

    def _judge(self, rule: Rule, history: History) -> Verdict:
        missing = missing_needs(rule, self.lane.provides)
        if missing:
            return unsupported(f"lane {self.lane.name} does not provide {', '.join(missing)}")
        unrecorded = sorted(need for need in rule.needs if need.startswith("trainer:") and not history.has(need))
        if unrecorded:
            return unsupported(f"{history.header.meta.get('sut') or 'the scenario'} records no {', '.join(unrecorded)}")
        try:
            return rule.judge(history)
        except Exception as error:
            raise HarnessError(f"judge of {rule.id}: {_one_line(error)}") from error


@contextmanager
def outlived() -> Iterator[None]:
    """While a client runs, `sys.exit` and `os._exit` in it must not end the run with the client's exit code."""
    own, leave = os.getpid(), os._exit

    def stay(code: int) -> NoReturn:
        if os.getpid() != own:
            leave(code)  # a fork of the client's own
        raise HarnessError(f"the system under test called os._exit({code})")

    os._exit = stay  # type: ignore[assignment]
    try:
        yield
    except SystemExit as error:
        raise HarnessError(f"the system under test called sys.exit({error.code!r})") from error
    finally:
        os._exit = leave


def missing_needs(rule: Rule, provides: frozenset[str]) -> list[str]:
    """Which of the facts that a rule's judge reads a lane cannot give; calls and harness notes always are there."""
    always = ("call", "harness:", "trainer:")
    return sorted(need for need in rule.needs if not need.startswith(always) and need not in provides)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, RefitcheckError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
