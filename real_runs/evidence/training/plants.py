"""Validators that are not fail-closed: one per rule, most of them as they were seen, or as a shortcut would be."""

# ruff: noqa: E501 - a table: a plant is a line
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

from harness.suites import Plant
from real_runs.evidence.training import metrics, values
from real_runs.evidence.training.markers import Marker
from real_runs.evidence.training.run import TrainingRun

VALIDATOR = "NVIDIA-NeMo/RL#3330"
HERE = "real_runs.evidence.training"
Find = Callable[[TrainingRun], Iterator[str]]


def _replaced(where: str, find: Any) -> Callable[[], AbstractContextManager[Any]]:
    module, _, name = where.partition(":")

    @contextmanager
    def apply() -> Iterator[None]:
        with mock.patch.object(import_module(f"{HERE}.{module}"), name, find):
            yield

    return apply


def _plant(id: str, rule: str, origin: str, text: str, where: str, find: Any) -> Plant:
    return Plant(id, "engine", frozenset({rule}), f"{VALIDATOR}{origin}", _replaced(where, find), text)


def _by_substring(run: TrainingRun) -> Iterator[str]:
    if not any("REFIT_SUCCESS" in text for text in run.logs.values()):
        yield "no success"


def _unordered(run: TrainingRun) -> Iterator[str]:
    starts, ends = (run.marked(kind) for kind in ("REFIT_START", "REFIT_SUCCESS"))
    if len(starts) != len(ends):
        yield f"{len(starts)} refits, {len(ends)} successes: one has no end or has not ended"
    yield from (f"{one.place}: failed in transfer" for one in run.marked("REFIT_FAILURE"))


def _last_group(run: TrainingRun) -> Iterator[str]:
    ready = run.marked("REFIT_GROUP_READY")
    if not ready:
        yield "no GROUP_READY"
    elif (ready[-1].number("world_size"), ready[-1].number("engines")) != (3, 1):
        yield f"world_size {ready[-1].fields['world_size']}, {ready[-1].fields['engines']} engines"


def _line_by_line(name: str, text: str) -> Iterator[str]:
    from real_runs.evidence.training import fatal

    for number, line in enumerate(text.split("\n"), 1):
        squeezed = "".join(line.split()).lower()
        for what, pattern in fatal.PATTERNS:
            if pattern.search(squeezed):
                yield f"{name}:{number}: {what}"


def _last_step(run: TrainingRun) -> Iterator[str]:
    found = run.series.get(metrics.LOSS)
    if not found or max(int(float(step)) for step in found) < run.told.expected.steps:
        yield "no step 4" if found else "no series"


def _at_least(run: TrainingRun) -> Iterator[str]:
    done = len(run.marked("REFIT_SUCCESS"))
    if done < 2:
        yield f"{done} refits succeeded"


def _median(run: TrainingRun) -> Iterator[str]:
    from statistics import median

    found = [float(value) for value in run.series.get(metrics.GATE, {}).values()]
    if not found or median(found) > run.told.expected.gate_bound:
        yield "the median is beyond the bound"


def _nothing(_run: TrainingRun) -> Iterator[str]:
    return iter(())


def _there(run: TrainingRun) -> Iterator[str]:
    if not any(name.startswith("train_data_step") for name in run.files):
        yield "no artefact"


def _said_to_pass(run: TrainingRun) -> Iterator[str]:
    marked: list[Marker] = run.marked("REFIT_VALUE_CHECK")
    if not any(one.fields["result"] == "pass" for one in marked):
        yield "shapes cannot see wrong values; says fail"


def _any_change(check: values.ValueCheck) -> Iterator[str]:
    for phases in check.engines.values():
        if phases.get("reset") == phases.get("refit"):
            yield "the reset left everything as it was"


def _same_words(run: TrainingRun) -> Iterator[str]:
    for name, claim in run.told.claims.items():
        if claim.found != claim.expected:
            yield f"{name} is {claim.found}, expected {claim.expected}: no immutable revision"


def _one_that_ran(run: TrainingRun) -> Iterator[str]:
    if not run.told.tests.ran:
        yield "tests did not run"


def _last_cause(run: TrainingRun) -> Iterator[str]:
    yield from (f"{one.what}: {one.said}" for one in run.told.preflight if not one.ok)


def _trees_alone(run: TrainingRun) -> Iterator[str]:
    if run.told.snapshot.tree != run.told.snapshot.checkout_tree:
        yield "never ran"


def _one_is_patched(run: TrainingRun) -> Iterator[str]:
    if run.told.patches and all(one.found == one.stock for one in run.told.patches):
        yield "as shipped"


def _one_environment(run: TrainingRun) -> Iterator[str]:
    found = {name: v for one in run.told.environments.values() for name, v in one.packages.items()}
    for one in run.told.environments.values():
        yield from (f"{name}: its lock says {v}" for name, v in one.pins.items() if found.get(name) != v)


def _any_recipe(run: TrainingRun) -> Iterator[str]:
    if run.told.launch.gpu_hours > 24:
        yield "the cap"


def _any_times(run: TrainingRun) -> Iterator[str]:
    if run.told.exit_code:
        yield f"exit code {run.told.exit_code}"


PLANTS = (
    _plant("markers-by-substring", "EVID-1", "", "markers are counted as substrings", "log_checks:whole_markers", _by_substring),
    _plant("refits-in-any-order", "EVID-2", "", "starts and successes are counted, not paired", "log_checks:paired", _unordered),
    _plant("the-last-group-counts", "EVID-3", ", D56", "only the last GROUP_READY is looked at", "log_checks:topology", _last_group),
    _plant("line-by-line", "EVID-4", "", "an error whose line is broken is not seen", "fatal:found", _line_by_line),
    _plant("the-last-step-counts", "EVID-5", "", "only the highest step is looked at", "count_checks:losses", _last_step),
    _plant("two-refits-will-do", "EVID-6", "", "a minimum of two successes", "count_checks:refits_equal_steps", _at_least),
    _plant("the-median-of-the-gate", "EVID-7", "", "the median is within the bound", "count_checks:gate", _median),
    _plant("no-series-is-asked-for", "EVID-8", "", "what the run reports is taken as it is", "count_checks:reported", _nothing),
    _plant("any-artefact", "EVID-9", ", D111", "one artefact of any run will do", "count_checks:artefacts", _there),
    _plant("a-pass-that-is-said", "EVID-10", ", D107", "a value check is believed", "value_checks:by_values", _said_to_pass),
    _plant("a-reset-of-something", "EVID-11", ", D108", "a reset that changed anything is a control", "values:without_control", _any_change),
    _plant("any-action", "EVID-12", ", D109", "the checker's actions are not looked at", "value_checks:known_actions", _nothing),
    _plant("provenance-of-itself", "EVID-13", ", D110", "a default is compared with itself", "provenance_checks:claims", _same_words),
    _plant("one-test-ran", "EVID-14", ", D110", "some test ran", "provenance_checks:tests", _one_that_ran),
    _plant("a-failure-without-its-cause", "EVID-15", ", D110", "the last error of a preflight alone", "provenance_checks:preflight", _last_cause),
    _plant("a-snapshot-used-again", "EVID-16", ", D111", "a snapshot of any age", "provenance_checks:snapshot", _trees_alone),
    _plant("one-file-is-patched", "EVID-17", ", D112", "one patched file speaks for all", "provenance_checks:patches", _one_is_patched),
    _plant("one-list-of-packages", "EVID-18", ", D119", "environments are not told apart", "provenance_checks:packages", _one_environment),
    _plant("any-recipe", "EVID-19", ", D120", "recipes and keys are whatever is written", "provenance_checks:launch", _any_recipe),
    _plant("the-exit-alone", "EVID-20", ", D80", "an exit of 0 is the verdict", "provenance_checks:times", _any_times),
)  # fmt: skip


def catalogue() -> tuple[Plant, ...]:
    """Every plant."""
    return PLANTS
