"""What a violation of a rule looks like: its planted defect, run in process until the rule speaks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from harness.errors import RefitcheckError
from harness.lanes.fake import known_versions
from harness.rules import Rule, Verdict
from harness.runner import Runner
from harness.settings import DEFAULT_VERSION, Exploration, Settings
from harness.suites import Book, Plant
from harness.units import units_of
from harness.versions import version_matches

SHARDS = 64
"""An exploration is run in so many parts: the first that breaks the rule is enough."""


@dataclass(frozen=True)
class Example:
    """A plant, what the rule said of it, in which scenario, and the command that shows it again."""

    plant: Plant
    verdict: Verdict
    scenario: str
    replay: str


def example_of(book: Book, rule: Rule) -> Example | None:
    """The first violation; None where no plant of the rule can be run in process."""
    fitting = [version for version in known_versions() if version_matches(version, rule.versions)]
    if not fitting:
        return None
    version = DEFAULT_VERSION if DEFAULT_VERSION in fitting else fitting[-1]
    for plant in book.plants_of(rule.id):
        exploration: Exploration = "full" if rule.id in book.invariants else "off"
        settings = Settings(rules=(rule.id,), versions=(version,), plant=plant.id, exploration=exploration)
        try:
            found = _run(settings, book, rule, plant)
        except RefitcheckError:
            continue
        if found is not None:
            return found
    return None


def _run(settings: Settings, book: Book, rule: Rule, plant: Plant) -> Example | None:
    runner = Runner(settings, book)
    try:
        settings = dataclasses.replace(settings, tp=runner.tp)
        for unit in units_of(settings, book, runner.info.name, runner.tp, shards=SHARDS):
            finding = runner.execute(unit).findings.get(rule.id)
            if finding is not None and finding.verdict.status == "violated":
                narrow = {"scenarios": (unit.scenario,), "suts": (unit.sut,) if unit.sut else ()}
                replay = settings.replay(kind=runner.info.kind, faults=finding.faults, **narrow)
                return Example(plant, finding.verdict, unit.scenario, replay)
    finally:
        runner.close()
    return None
