"""Checks of what was counted and measured: losses, refits, the gate, tokens, artefacts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from real_runs.evidence.training import metrics
from real_runs.evidence.training.run import LOG, MAX_FILES, TrainingRun

MOST_BOUND = 2.0
"""A bound of token_mult_prob_error above this one bounds nothing: NeMo-RL's own are 1.05 and 1.1."""


def losses(run: TrainingRun) -> Iterator[str]:
    """One finite loss for every step up to the last."""
    yield from metrics.problems(metrics.LOSS, run.series.get(metrics.LOSS), run.told.expected.steps)


def refits_equal_steps(run: TrainingRun) -> Iterator[str]:
    """As many refits succeeded as were to, one per step and at most two more per value check."""
    expected = run.told.expected
    done = len(run.marked("REFIT_SUCCESS"))
    if done != expected.refits:
        yield f"{LOG}: {done} refits succeeded, expected {expected.refits}"
    if not expected.steps <= expected.refits <= expected.steps + 2 * expected.value_checks:
        yield (
            f"run.json: {expected.refits} refits expected of {expected.steps} steps and {expected.value_checks} "
            "value checks"
        )
    if expected.window > expected.steps:
        yield f"run.json: windows of {expected.window} steps in a run of {expected.steps}"


def gate(run: TrainingRun) -> Iterator[str]:
    """token_mult_prob_error is within its bound at every step; it is the mean of exp(|a - b|), so never below 1."""
    expected = run.told.expected
    if not 1 < expected.gate_bound <= MOST_BOUND:
        yield f"run.json: gate_bound {expected.gate_bound} is not between 1 and {MOST_BOUND:g}"
    given = run.series.get(metrics.GATE)
    wrong = list(metrics.problems(metrics.GATE, given, expected.steps))
    yield from wrong
    if given is None or wrong:
        return
    for step, value in metrics.numbers(given).items():
        if not 1 - 1e-6 <= value <= expected.gate_bound:
            yield f"{metrics.NAME}: {metrics.GATE} at step {step} is {value:g}, not from 1 to {expected.gate_bound:g}"


def reported(run: TrainingRun) -> Iterator[str]:
    """Every further series that the run reports is whole; valid tokens are there in each step, gradients in one."""
    expected = run.told.expected
    known = {name for name in (metrics.TOKENS, metrics.GRADIENTS, metrics.REWARD) if name in run.series}
    for name in sorted(known - set(expected.series)):
        yield f"{metrics.NAME}: {name} is reported, and run.json does not say so"
    for name in expected.series:
        given = run.series.get(name)
        wrong = list(metrics.problems(name, given, expected.steps))
        yield from wrong
        if given is None or wrong:
            continue
        found = metrics.numbers(given)
        if name == metrics.TOKENS:
            yield from (f"{metrics.NAME}: {name} at step {step} is {n:g}" for step, n in found.items() if n < 1)
        if name == metrics.GRADIENTS:
            yield from (f"{metrics.NAME}: {name} at step {step} is {n:g}" for step, n in found.items() if n < 0)
            if not any(n > 0 for n in found.values()):
                yield f"{metrics.NAME}: {name} is 0 at every step"


def artefacts(run: TrainingRun) -> Iterator[str]:
    """Every artefact is there, not empty, written while the run ran; one of them is written at every step."""
    told = run.told
    if not any("{step}" in name for name in told.expected.artefacts):
        yield "run.json: no artefact of every step (a name with {step})"
    many = sum(told.expected.steps if "{step}" in pattern else 1 for pattern in told.expected.artefacts)
    if many > MAX_FILES:
        yield f"run.json: {many} artefacts, and a run may leave {MAX_FILES} files"
        return
    names = [LOG, metrics.NAME]
    for pattern in told.expected.artefacts:
        every = range(1, told.expected.steps + 1) if "{step}" in pattern else range(1)
        names += [pattern.replace("{step}", str(step)) for step in every]
    began, ended = math.floor(told.started.timestamp()), told.ended.timestamp()
    for name in names:
        kept = run.files.get(name)
        if kept is None:
            yield f"{name} is missing"
        elif not kept.size:
            yield f"{name} is empty"
        elif kept.written < began:
            yield f"{name} was written before the run started"
        elif name not in (LOG, metrics.NAME) and kept.written > ended + 60:
            yield f"{name} was written after the run ended"
