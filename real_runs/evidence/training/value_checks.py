"""Checks of the proof that a refit moved the values: made again from the checksums, whatever the log says of it."""

from __future__ import annotations

from collections.abc import Iterator

from real_runs.evidence.training import values
from real_runs.evidence.training.run import LOG, TrainingRun


def by_values(run: TrainingRun) -> Iterator[str]:
    """There is a check of values, not of shapes alone; it passed, and the checksums say so too."""
    expected = run.told.expected
    shapes = run.marked("REFIT_EXPORT_SHAPE_CHECK")
    for one in shapes:
        if "skipped" in one.fields:
            yield f"{one.place}: the shape check was skipped"
        elif one.number("mismatches") or len({one.fields[f] for f in ("compared", "exported", "reference")}) > 1:
            yield f"{one.place}: the shapes of the export differ from the reference"
        elif not one.number("compared"):
            yield f"{one.place}: no shape was compared"
    marked = run.marked("REFIT_VALUE_CHECK")
    for one in marked:
        if one.fields["result"] != "pass":
            yield f"{one.place}: the value check says {one.fields['result']}"
    if not marked:
        yield f"{LOG}: no value check" + (": shapes cannot see wrong values" if shapes else "")
    if not len(marked) == len(run.value_checks) == expected.value_checks:
        yield (
            f"{len(run.value_checks)} value checks in {values.NAME}, {len(marked)} in {LOG}, expected "
            f"{expected.value_checks}"
        )
    steps = [check.step for check in run.value_checks]
    if steps[:1] != [1] or steps != sorted(set(steps)) or steps[-1] > expected.steps:
        yield f"{values.NAME}: steps {steps[:5]}: they grow, from 1, and are steps of the run"
    for check in run.value_checks:
        yield from (f"{values.NAME}: step {check.step}: {line}" for line in values.wrong_values(check))


def with_control(run: TrainingRun) -> Iterator[str]:
    """Between two refits every tensor of every rank was reset, and ranks are known by their number."""
    expected = run.told.expected
    for check in run.value_checks:
        for wrong in (values.wrong_ranks(check, expected.engines, expected.tp), values.without_control(check)):
            yield from (f"{values.NAME}: step {check.step}: {line}" for line in wrong)


def known_actions(run: TrainingRun) -> Iterator[str]:
    """The checker was asked for actions that it knows."""
    for check in run.value_checks:
        yield from (f"{values.NAME}: step {check.step}: {line}" for line in values.wrong_actions(check))
