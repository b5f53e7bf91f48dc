"""Running scenarios of the suite in process."""

from __future__ import annotations

from functools import cache

import conformance
from conformance.plants import catalogue
from harness.explore.rules import INVARIANTS
from harness.faults import Fault
from harness.history import History
from harness.rules import Rule
from harness.runner import Runner
from harness.scenario import Scenario
from harness.settings import Settings
from harness.suites import Book
from harness.versions import version_matches

VERSIONS = ("0.5.23", "0.5.22", "0.5.21", "0.5.20", "0.5.19", "0.5.18", "0.5.17", "0.5.12.post1", "miles")
TP = 2


@cache
def book() -> Book:
    found = Book()
    found.add_suite(conformance.suite())
    found.add_invariants(INVARIANTS)
    found.add_plants(catalogue())
    return found


def version_of(rule: Rule) -> str:
    """The newest version that a rule speaks of."""
    return next(version for version in VERSIONS if version_matches(version, rule.versions))


def run(scenario: Scenario, version: str, faults: tuple[Fault, ...] = ()) -> History:
    runner = Runner(Settings(versions=(version,), tp=TP, lane="fake"), book())
    try:
        return runner.run_once(scenario, version, "reference" if scenario.side == "refit" else "", faults)
    finally:
        runner.close()


def scenarios_of(rule: Rule, version: str) -> list[Scenario]:
    return [s for s in book().scenarios_of(rule.id) if s.fits(version, TP, "fake")]
