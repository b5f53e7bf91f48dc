"""PART: there is no rollback. What was taken stays, and only a complete set heals."""

from __future__ import annotations

from conformance.judging import every, said, wrong
from conformance.pushes import push_answered, push_gives
from conformance.refits import Finding, Part, each_part
from conformance.rules.make import engine, refit
from conformance.tokens import samples, seeds_of, truths
from conformance.view import UPDATE_OPS
from harness.history import History
from harness.rules import Verdict, held

WU = "managers/scheduler_components/weight_updater.py"


def _nothing_torn_is_served(history: History) -> Verdict:
    """After a refit failed, what is served until the next one that succeeds is served from a whole set.

    A prompt that nobody answers counts: an engine that is kept from serving serves nothing torn.
    """
    truth = truths(history)
    refits = history.refits()
    exercised = 0
    for r in refits:
        if r.ok is not False or not _was_touched(history, r.pos, r.end_pos):
            continue
        until = min((x.pos for x in refits if x.pos > r.pos), default=history.length)
        for call in history.calls("generate"):
            if not r.end_pos < call.pos < until or call.fault or tuple(call.arg("input_ids") or ()) not in truth:
                continue
            exercised += 1
            for sample in samples(history, engine=call.engine):
                if sample.call.id == call.id and call.end_pos < until and seeds_of(sample, truth) == frozenset():
                    told = f"{list(sample.tokens)} labelled {sample.label!r}, which no whole set of weights answers"
                    return wrong(call, ["no answer, or one of a whole set"], exercised, told)
    return held(exercised)


def _nothing_in_between(part: Part, history: History) -> Finding | bool:
    """Requests that arrive between the first bucket and the end are answered from one whole set, before or after."""
    if not part.buckets:
        return False
    first = part.buckets[0]
    closing = part.op("end_weight_update") or part.buckets
    truth = truths(history)
    met = False
    for sample in samples(history, engine=part.engine):
        call = sample.call
        if call.origin == "sut" or not first.pos < call.pos < closing[-1].end_pos or sample.prompt not in truth:
            continue
        met = True
        if sample.finish != "abort" and not seeds_of(sample, truth):
            told = f"{list(sample.tokens)}, of no set, while the update was under way"
            return "an answer of the old set, or later of the new one", told, str(call)
    return None if met else False


def _was_touched(history: History, start: int, end: int) -> bool:
    calls = history.calls(UPDATE_OPS, origin="sut")
    return any(start < c.pos < end for c in calls)


RULES = (
    refit(
        "PART-1",
        "After a failed or partial update an engine serves nothing from torn weights: it waits, is given up, or gets a "
        "complete set.",
        _nothing_torn_is_served,
        [f"{WU}:187@0.5.23", "sgl-project/sglang-omni#784", "NVIDIA-NeMo/RL#3330"],
        follows=["NAME-71"],
        echoes=["VERIF-1"],
        mend=(
            "after a failed bucket keep the engine paused, end the session, and continue it only once a complete set "
            "is in; or give it up"
        ),
    ),
    refit(
        "PART-71",
        "While an update is under way no request is answered from a part of it.",
        each_part(_nothing_in_between),
        ["managers/tokenizer_control_mixin.py:470@0.5.23", "OpenRLHF/OpenRLHF#1262", "NVIDIA-NeMo/RL#3519"],
        follows=["NAME-71"],
        echoes=["VERIF-1"],
        mend=(
            "pause before the first bucket and continue after the end; a pause that lets requests run on between "
            "buckets is not enough"
        ),
    ),
    engine(
        "PART-51",
        "A bucket that was taken stays, whatever becomes of the rest of its session.",
        every(push_answered("first-half", said(200)), push_gives("first-half")),
        [f"{WU}:232@0.5.23"],
        mend="look at the updater: there is no rollback, so a bucket that was taken stays in the live weights",
    ),
    engine(
        "PART-52",
        "A complete set heals a partial one, in a session of its own.",
        every(push_answered("heal", said(200)), push_gives("heal")),
        [f"{WU}:232@0.5.23"],
        mend="look at the updater: it keeps no error state, and a later whole set makes the weights whole",
    ),
)
