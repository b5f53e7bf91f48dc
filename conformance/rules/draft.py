"""DRAFT: a draft model beside the target, which a refit loads or leaves alone, as the version and its fields say."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.judging import Judge, every, wrong
from conformance.rules.make import engine, refit
from harness.history import Call, History, Note
from harness.rules import Verdict, held

WU = "managers/scheduler_components/weight_updater.py"
CHECK = "weights_checker"
SHARED = ("embed_tokens", "lm_head")
"""What a draft borrows from the target."""

SELECTS = ">=0.5.21 || miles"
BEFORE = ">=0.5.17,<0.5.21,!=miles"


def _sums(call: Call) -> list[Mapping[str, str]]:
    """Every rank's checksums by name."""
    return [dict(rank.get("checksums") or {}) for rank in call.answer("ranks") or ()]


def _looks(history: History, note: Note) -> tuple[Call, Call] | None:
    """The last look at the checksums before a place, and the first after it."""
    calls = [c for c in history.calls(CHECK, engine=note.engine) if c.ok and not c.fault and _sums(c)]
    before = [c for c in calls if c.end_pos < note.pos]
    after = [c for c in calls if c.pos > note.pos]
    return (before[-1], after[0]) if before and after else None


def _changed(before: Call, after: Call) -> set[str]:
    """Which of target and draft have other checksums than before, on any rank."""
    found = set()
    for old, new in zip(_sums(before), _sums(after), strict=True):
        for name in old.keys() | new.keys():
            if old.get(name) != new.get(name) and not any(part in name for part in SHARED):
                found.add("draft" if name.startswith("draft.") else "target")
    return found


def _changes(fact: str, kind: str, *hits: str) -> Judge:
    """What follows a fact of this kind changes target, draft, both or neither, and nothing else."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for note in history.facts(fact, source="harness", **({"kind": kind} if kind else {})):
            looks = _looks(history, note)
            if looks is None:
                continue
            exercised += 1
            found = _changed(*looks)
            if found != set(hits):
                right = f"a change of {' and '.join(hits) or 'nothing'}"
                return wrong(
                    looks[1],
                    [right],
                    exercised,
                    f"a change of {' and '.join(sorted(found, reverse=True)) or 'nothing'}",
                )
        return held(exercised)

    return judge


def _follows(history: History) -> Verdict:
    """After a refit that succeeded the draft is the policy's."""
    exercised = 0
    for note in history.facts("draft_sums", source="harness"):
        refits = [r for r in history.refits() if r.end_pos < note.pos]
        calls = [c for c in history.calls(CHECK, engine=note.engine) if c.pos > note.pos and c.ok]
        if not refits or not refits[-1].ok or not calls:
            continue
        exercised += 1
        for rank, sums in enumerate(_sums(calls[0])):
            stale = [name for name, wanted in dict(note.get("sums") or {}).items() if sums.get(name) != wanted]
            if stale:
                told = f"refit {refits[-1].index}: {stale[0]} of rank {rank} is another"
                return wrong(calls[0], ["the draft of the policy on every rank"], exercised, told)
    return held(exercised)


RULES = (
    refit(
        "DRAFT-1",
        "After a refit the draft is the policy's, too: what its tensors are sent with leaves it no older one.",
        _follows,
        ["sgl-project/sglang#27718", f"{WU}:178,245@0.5.23"],
        versions=">=0.5.17 || miles",
        mend="send the draft's tensors with selector all or draft (up to 0.5.20 without disable_draft_model)",
    ),
    engine(
        "DRAFT-51",
        "An update loads the runners that its selector names: target and draft, or one of them.",
        every(
            _changes("push", "draft-all", "target", "draft"),
            _changes("push", "draft-target", "target"),
            _changes("push", "draft-draft", "draft"),
        ),
        [f"{WU}:178,245@0.5.23"],
        versions=SELECTS,
        mend="look at how the selector of a request becomes a list of runners",
    ),
    engine(
        "DRAFT-52",
        "An update loads draft and target, and with disable_draft_model the target alone.",
        every(_changes("push", "draft-all", "target", "draft"), _changes("push", "draft-target", "target")),
        [f"{WU}:160@0.5.20", "speculative/eagle_worker_v2.py:1682@0.5.20"],
        versions=BEFORE,
        mend="look at which worker takes an update where there is a draft worker",
    ),
    engine(
        "DRAFT-53",
        "A broadcast is loaded by the target alone: the draft stays what it was.",
        _changes("push", "draft-stale", "target"),
        ["sgl-project/sglang#27718", f"{WU}:142@0.5.20"],
        versions=BEFORE,
        mend="look at the worker that a broadcast is handed to: it is never the draft's",
    ),
    engine(
        "DRAFT-54",
        "A broadcast that the target received is loaded by the draft, too.",
        _changes("push", "draft-group", "target", "draft"),
        ["sgl-project/sglang#27718", f"{WU}:214@0.5.23"],
        versions=SELECTS,
        mend="look at what is done with received tensors: one receive, and one load for each runner",
    ),
    engine(
        "DRAFT-55",
        "A session for all finalises a draft that nothing was sent for, and spoils it; one for the target does not.",
        every(_changes("push", "frozen-apart"), _changes("push", "frozen-in-all", "draft")),
        ["radixark/miles#1926", f"{WU}:331@0.5.23"],
        versions=SELECTS,
        mend="look at the selector of the session, not that of the request: its end finalises those runners",
    ),
    engine(
        "DRAFT-56",
        "The backup of the target's weights does not bring a draft back.",
        _changes("away", "", "draft"),
        ["model_executor/model_runner_components/load_model_utils.py:308@0.5.23"],
        versions=">=0.5.17 || miles",
        mend="look at --enable-draft-weights-cpu-backup: the draft's memory has a flag of its own",
    ),
)
