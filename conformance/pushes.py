"""Judges of what a scenario pushed. The request shows digests only; the scenario says beside it what was in it.

The harness's fact `push` {kind, seeds} stands right before the update that it speaks of; `kind` is the scenario's name
for it ("unknown-name"), `seeds` the seeds whose clean answers may be seen after it (empty: none of them).
"""

from __future__ import annotations

from conformance.judging import Answer, Judge, wrong
from conformance.tokens import around, sample_of, seeds_of, truths
from conformance.view import UPDATE_OPS
from harness.history import Call, History, Note
from harness.rules import Verdict, held


def after(history: History, engine: str, pos: int) -> list[Call]:
    """The updates of one engine that left after a place in the history."""
    return [call for call in history.calls(UPDATE_OPS, engine=engine) if call.pos > pos]


def pushed(history: History, kind: str) -> list[tuple[Note, Call]]:
    """The pushes of one kind, each with its update call."""
    out: list[tuple[Note, Call]] = []
    for note in history.facts("push", source="harness", kind=kind):
        calls = after(history, note.engine, note.pos)
        if calls and not calls[0].fault:
            out.append((note, calls[0]))
    return out


def push_answered(kind: str, *allowed: Answer) -> Judge:
    """Every push of this kind is answered as allowed."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for _, call in pushed(history, kind):
            exercised += 1
            if not any(answer.test(call) for answer in allowed):
                return wrong(call, [a.text for a in allowed], exercised)
        return held(exercised)

    return judge


def push_unchanged(kind: str) -> Judge:
    """Around every push of this kind the same prompt gives the same answer."""

    def judge(history: History) -> Verdict:
        from conformance.tokens import same

        exercised = 0
        for _, call in pushed(history, kind):
            for before, after in around(history, call):
                exercised += 1
                if not same(before.said, after.said):
                    told = f"before {list(before.tokens)}, after {list(after.tokens)}"
                    return wrong(after.call, ["the same answer as before the update"], exercised, told)
        return held(exercised)

    return judge


def push_gives(kind: str) -> Judge:
    """After every push of this kind the answers are those of the seeds that its note names; none named: of none known.

    Only samples up to the next update count, and only prompts whose clean answers are known.
    """

    def judge(history: History) -> Verdict:
        truth = truths(history)
        exercised = 0
        for note, call in pushed(history, kind):
            wanted = frozenset(int(seed) for seed in note.get("seeds", ()))
            following = after(history, call.engine, call.pos)
            until = following[0].pos if following else history.length
            for other in history.calls("generate", engine=call.engine):
                if not call.end_pos < other.pos < until:
                    continue
                sample = sample_of(other)
                seeds = seeds_of(sample, truth) if sample is not None else None
                if sample is None or seeds is None:
                    continue
                exercised += 1
                if (wanted and not wanted & seeds) or (not wanted and seeds):
                    right = (
                        f"the answer of seed {sorted(wanted)}" if wanted else "the answer of no whole set of weights"
                    )
                    return wrong(other, [right], exercised, f"{list(sample.tokens)}, of seeds {sorted(seeds)}")
        return held(exercised)

    return judge
