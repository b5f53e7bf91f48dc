"""Whether the fake is judged as the real engine was: the verdicts of a dated record beside those of the fake now."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from harness.lanes.base import EngineHandle, EngineSpec
from harness.lanes.fake import FakeLane
from harness.results import Result, results_of
from harness.runner import Runner
from harness.settings import Settings, side_of
from harness.suites import Book, load_book
from harness.units import units_of
from real_runs.validation import NotGreen, Record

GPU_LANE = "sglang-gpu"


class GpuFakeLane(FakeLane):
    """Fakes of engines on GPUs: what `EngineConfig.device` says differs there."""

    def engine(self, spec: EngineSpec, name: str = "e0") -> EngineHandle:
        """A fresh fake engine with a GPU."""
        options = tuple(sorted({"device": "cuda", **dict(spec.options)}.items()))
        return super().engine(dataclasses.replace(spec, options=options), name)


@dataclass(frozen=True)
class Agreement:
    """`same` rules have the same verdict on both; each of the others is a rule with one line about it.

    `unsupported`: the real lane cannot judge them. `new`: not in the record, and none of their scenarios claims to be
    validated. Only `different` is wrong.
    """

    same: tuple[str, ...]
    different: Mapping[str, str]
    unsupported: Mapping[str, str]
    new: Mapping[str, str]


def fake_results(record: Record, book: Book) -> list[Result]:
    """What the fake of the record's version gives in the scenarios of its lane. NotGreen when there is no such fake."""
    settings = Settings(
        versions=(record.engine,), tp=record.tp, seed=record.seed, side=side_of(record.side), exploration="off"
    )
    lane = GpuFakeLane() if record.lane == GPU_LANE else FakeLane()
    if record.engine not in lane.versions:
        raise NotGreen(f"{record.name}: there is no fake of {record.engine}")
    runner = Runner(settings, book, lane)
    try:
        units = units_of(settings, book, record.lane, record.tp)
        reports = [runner.execute(unit) for unit in units]
    finally:
        runner.close()
    return results_of(settings, book, runner.info, reports)


def agreement(record: Record, book: Book | None = None) -> Agreement:
    """Compare; costs a run of the fake, some seconds."""
    whole = book if book is not None else load_book()
    return compared(record, {result.rule.id: result.status for result in fake_results(record, whole)}, whole)


def compared(record: Record, fake: Mapping[str, str], book: Book) -> Agreement:
    """The comparison alone: `fake` is rule id -> status."""
    same, different, new = [], {}, {}
    for rule, status in fake.items():
        real = record.rules.get(rule)
        if real == "unsupported":
            continue
        if real is None and not _claims(book, rule, record):
            new[rule] = f"not in the record of {record.date}"
        elif real == status:
            same.append(rule)
        else:
            said = f"is {real}" if real else "has no verdict, though a scenario of it says that it was validated"
            different[rule] = f"on the real {record.engine} it {said}, on the fake {status}"
    gone = {rule: "the fake's run has no such rule" for rule in record.rules if rule not in fake and rule in book.rules}
    unsupported = {rule: why for rule, why in record.unsupported.items() if rule in fake}
    judged = {rule: why for rule, why in gone.items() if rule not in record.unsupported}
    return Agreement(tuple(same), different | judged, unsupported, new)


def _claims(book: Book, rule: str, record: Record) -> bool:
    """Whether a scenario that fits the record says that the real engine of its version was seen to do so: on a CPU."""
    return record.lane != GPU_LANE and any(
        scenario.relation.removeprefix("validated:").split()[:1] == [record.engine]
        for scenario in book.scenarios_of(rule)
        if scenario.relation.startswith("validated:") and scenario.fits(record.engine, record.tp, record.lane)
    )
