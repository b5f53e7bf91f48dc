"""What pytest collects of a suite: one item per rule, engine version and system under test."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import RefitcheckError
from harness.outputs import Outputs
from harness.pool import Crew, any_apart
from harness.pytest_report import Gathered
from harness.report import text
from harness.report.run import Run
from harness.results import Result, results_of
from harness.rules import Rule
from harness.run import check_names, settings_from
from harness.runner import Runner
from harness.settings import DEFAULT_SEED, DEFAULT_VERSION, HANG_TIMEOUT_S, Settings, named
from harness.suites import Book, load_book
from harness.units import Unit, UnitReport, units_of
from harness.words import visible


class Session:
    """One pytest run: its settings, the book, and what was executed so far."""

    def __init__(self, given: dict[str, Any], *, writes: bool = True) -> None:
        def get(option: str, default: Any) -> Any:
            value = given.get(option)
            return default if value is None else value

        self.settings, self.info = settings_from(
            engine=get("--engine", DEFAULT_VERSION),
            lane=get("--lane", "fake"),
            sut=get("--sut", "reference"),
            policy=get("--policy", "resume"),
            tp=_number("--tp", get("--tp", 0)),
            seed=_number("--seed", get("--seed", DEFAULT_SEED)),
            rules=tuple(get("--rule", ())),
            scenarios=tuple(get("--scenario", ())),
            allow_inconclusive=tuple(get("--allow-inconclusive", ())),
            side=get("--side", ""),
            exploration=get("--exploration", ""),
            fatal_sample=_sample(given.get("--fatal-sample")),
            fault=get("--fault", ""),
            plant=get("--plant", ""),
            hang_timeout=_number("--hang-timeout", get("--hang-timeout", HANG_TIMEOUT_S), float),
            death=get("--death", "raise"),
            lane_options=tuple(get("--lane-option", ())),
            sut_options=tuple(get("--sut-option", ())),
        )
        self.book = load_book()
        check_names(self.settings, self.book)
        self._units = units_of(self.settings, self.book, self.info.name, self.info.tp)
        self._reports: dict[Unit, UnitReport] = {}
        self._gathered = Gathered()
        self._outputs = Outputs(report=_path(get("--refit-report", "")), summary=_path(get("--refit-summary", "")))
        if writes:
            self._outputs.check()
        self._said: set[str] = set()
        self._runner: Runner | None = None
        self._groups = _groups(self.book)
        self._crew: Crew | None = None
        if any_apart(self.settings):
            self._crew = Crew(self.settings)
            try:
                self._crew.check()
            except BaseException:
                self.close()
                raise

    def header(self) -> list[str]:
        """The line that tells every setting."""
        return [text.header(self.settings, self.info)]

    def result(self, rule: Rule, version: str, sut: str) -> Result:
        """Run what the rule needs and has not been run yet, and judge."""
        scenarios = {s.id for s in self.book.scenarios_of(rule.id)}
        for unit in self._units:
            mine = unit.scenario in scenarios and unit.version == version and unit.sut in ("", sut)
            if mine and unit not in self._reports:
                self._reports[unit] = self._executed(unit)
        narrow = _narrowed(self.settings, rule, version, sut)
        found = results_of(narrow, self.book, self.info, self._reports.values())
        self._gathered.judged.add((rule.id, version, sut))
        return next(r for r in found if r.rule is rule and r.version == version and r.sut == sut)

    def hung(self, version: str, sut: str) -> bool:
        """Whether a client did not come back so far: what it left unsettled is its doing."""
        units = ((unit, report) for unit, report in self._reports.items() if unit.version == version)
        return any(report.hung for unit, report in units if unit.sut == sut)

    def remarks(self) -> list[str]:
        """What is to be said beside the verdicts and was not said before."""
        found = [remark for remark in text.policies(self.settings, self._reports.values()) if remark not in self._said]
        self._said |= set(found)
        return found

    def done(self) -> bytes:
        """What this process ran, for `take` of another."""
        self._gathered.reports |= self._reports
        return self._gathered.packed()

    def take(self, done: bytes | None) -> None:
        """What a worker of ours ran; None of one that crashed."""
        self._gathered.take(done)

    def unmet(self) -> str:
        """One line for the faults of the run that met no call, neither here nor in a worker."""
        self._gathered.reports |= self._reports
        if any(report.fell for report in self._gathered.reports.values()):  # what had met a call there is not known
            return ""
        fired = {fault for report in self._gathered.reports.values() for fault in report.fired}
        unmet = [str(fault) for fault in self.settings.faults if str(fault) not in fired]
        return f"--fault {', '.join(unmet)} met no call of the client: nothing was faulted there" if unmet else ""

    def raised(self) -> list[str]:
        """One line when a refit failed though nothing was faulted."""
        self._gathered.reports |= self._reports
        return list(text.raised(self._gathered.reports[unit] for unit in self._units if unit in self._gathered.reports))

    def write(self) -> tuple[list[str], list[str]]:
        """Write the files of the run: their names, and a line for each that could not be written."""
        return self._outputs.write(self._done()) if self._gathered.judged else ([], [])

    def starting(self) -> list[str]:
        """The lines that say where to start, of several findings."""
        blocks = text.starting(self._done()) if self._gathered.judged else []
        return [line for block in blocks for line in visible(block).splitlines()]

    def _done(self) -> Run:
        self._gathered.reports |= self._reports
        return self._gathered.run(self.settings, self.book, self.info, self._units, self.unmet())

    def group(self, rule: Rule, version: str, sut: str) -> str:
        """Items of one group share explored histories and belong on one xdist worker; "" for an item on its own."""
        group = self._groups.get(rule.id)
        return "-".join(filter(None, (version, sut, group))) if group else ""

    def close(self) -> None:
        """Stop the lane."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    def _executed(self, unit: Unit) -> UnitReport:
        if self._crew is None:
            return self._run().execute(unit)
        (report,) = self._crew.reports([unit])
        return report

    def _run(self) -> Runner:
        if self._runner is None:
            self._runner = Runner(self.settings, self.book)
            self._runner.widely = True
        return self._runner


class SuiteFile(pytest.File):
    """The module of one suite."""

    def __init__(self, *, session_: Session, suite: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.refit = session_
        self.suite = suite

    def collect(self) -> Iterator[pytest.Item]:
        """Every rule of the suite that speaks of an engine of this run."""
        from harness.results import wanted

        for version, rule in wanted(self.refit.settings, self.refit.book):
            if self.refit.book.suite_of(rule.id) != self.suite:
                continue
            for sut in self.refit.settings.suts if rule.side == "refit" else ("",):
                target = f"{self.refit.info.kind}:{version}" + (f"-{sut}" if sut else "")
                name = f"{rule.id}[{target}]" + self._group(rule, version, sut)
                yield RuleItem.from_parent(self, name=name, rule=rule, version=version, sut=sut)

    def _group(self, rule: Rule, version: str, sut: str) -> str:
        """What --dist loadgroup of xdist groups by: the end of the name, behind an "@", on its workers.

        Written here and not left to the marker xdist_group: xdist 3.8 puts that into `Node._nodeid`, which pytest 9.2
        no longer reads.
        """
        group = self.refit.group(rule, version, sut) if getattr(self.config.option, "loadgroup", False) else ""
        return f"@{group}" if group else ""


class RuleItem(pytest.Item):
    """One rule on one engine version with one system under test.

    The scenarios run in setup, so that a harness error and what is inconclusive are errors; the verdict is the call, so
    that a failure is a violation.
    """

    def __init__(self, *, rule: Rule, version: str, sut: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rule, self.version, self.sut = rule, version, sut
        parent = self.parent
        assert isinstance(parent, SuiteFile)
        self.refit = parent.refit
        self.result: Result | None = None

    def setup(self) -> None:
        """Run the scenarios of the rule; skip when it is unsupported."""
        try:
            self.result = self.refit.result(self.rule, self.version, self.sut)
        except RefitcheckError as error:
            raise Told(str(error)) from None
        for remark in self.refit.remarks():  # not by Node.warn: it wants a line number, and a rule has none
            warnings.warn_explicit(pytest.PytestWarning(remark), None, str(self.path), 1)
        self.user_properties.append(("exercised", self.result.verdict.exercised))
        if self.result.status == "error":
            raise Told(text.failure(self.result, self.refit.info) + f"\n{self.result.trace}")
        if self.result.status == "unsupported":
            pytest.skip(f"unsupported: {self.result.verdict.missing}")
        if self.result.status == "inconclusive":
            if named(self.rule.id, self.refit.settings.allow_inconclusive):
                pytest.skip(f"inconclusive, as is allowed: {self.result.verdict.actual}")
            if not self.refit.hung(self.version, self.sut):
                raise Told(text.failure(self.result, self.refit.info))

    def runtest(self) -> None:
        """Fail unless it was held."""
        assert self.result is not None
        if self.result.status != "held":
            raise Told(text.failure(self.result, self.refit.info))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The block alone, without our own stack."""
        if isinstance(excinfo.value, Told):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where pytest says it is."""
        return self.path, None, self.name


class Told(pytest.fail.Exception):  # type: ignore[name-defined,misc]  # an attribute of a function
    """A finding in words, which pytest prints alone: without a stack, in setup too, where it asks no `repr_failure`."""

    def __init__(self, words: str) -> None:
        super().__init__(words, pytrace=False)


def _narrowed(settings: Settings, rule: Rule, version: str, sut: str) -> Settings:
    import dataclasses

    suts = (sut,) if sut else settings.suts
    return dataclasses.replace(settings, rules=(rule.id,), versions=(version,), suts=suts)


def _groups(book: Book) -> dict[str, str]:
    """Rule id -> name of its group: rules that share an explored scenario, however indirectly. No groups of one."""
    group = {rule: rule for rule in book.rules}

    def root(rule: str) -> str:
        while group[rule] != rule:
            rule = group[rule]
        return rule

    for scenario in book.scenarios.values():
        if scenario.explore and scenario.rules:
            first, *others = sorted(book.rules_of(scenario))
            for other in others:
                group[root(other)] = root(first)
    roots = {rule: root(rule) for rule in book.rules}
    sizes = Counter(roots.values())
    numbers = {name: number for number, name in enumerate((n for n, size in sizes.items() if size > 1), 1)}
    return {rule: f"explored-{numbers[name]}" for rule, name in roots.items() if name in numbers}


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _sample(value: Any) -> int | None:
    if value is None:
        return None
    number: int = _number("--fatal-sample", value)
    if number < 0:
        raise pytest.UsageError(f"--fatal-sample {value!r} is less than 0")
    return number


def _number(option: str, value: Any, kind: Callable[[Any], Any] = int) -> Any:
    try:
        return kind(value)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise pytest.UsageError(f"{option} {value!r} is not {what}") from None
