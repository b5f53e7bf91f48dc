"""The rules of evidence as rules of the book: dishonest evidence is handed to the validator, its answers are judged.

Nothing of it reaches an engine, so that the fakes' lane alone runs it.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.bench import Bench
from harness.history import History
from harness.rules import Rule, Verdict, held, violated
from harness.scenario import Scenario
from harness.suites import Suite
from real_runs.evidence.training import dishonest, good, validating
from real_runs.evidence.training.checks import CHECKS, Check
from real_runs.evidence.training.run import TrainingRun

FACT = "evidence"
RELATION = "fake only: evidence is files, whatever engine they are of"


def suite() -> Suite:
    """A rule per check, and a scenario per rule."""
    return Suite("evidence", tuple(map(_rule, CHECKS)), tuple(map(_scenario, CHECKS)))


def _rule(check: Check) -> Rule:
    return Rule(
        id=check.rule,
        level="MUST",
        side="engine",
        text=check.text,
        versions="",
        citations=check.citations,
        judge=_judge(check.rule),
        needs=frozenset({"harness:evidence"}),
        mend=check.mend,
    )


def _scenario(check: Check) -> Scenario:
    cases = tuple(case for case in dishonest.CASES if case.rule == check.rule)

    def run(bench: Bench) -> None:
        _show(bench, check.rule, "", "", TrainingRun(good.files()))
        for case in cases:
            _show(bench, check.rule, case.id, case.word, case.run())

    return Scenario(
        id=f"evidence/{check.rule.lower()}",
        rules=frozenset({check.rule}),
        run=run,
        relation=RELATION,
        lanes=frozenset({"fake"}),
    )


def _show(bench: Bench, rule: str, case: str, word: str, run: TrainingRun) -> None:
    said = [line for found, line in validating.refusals(run) if found == rule]
    bench.note(FACT, rule=rule, case=case, word=word, said=said)


def _judge(rule: str) -> Callable[[History], Verdict]:
    """Of the good run nothing is refused; every dishonest one is, with a line that has its word."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for note in history.facts(FACT, source="harness", rule=rule):
            case, word, said = str(note.get("case")), str(note.get("word")), list(note.get("said") or ())
            if not case and said:
                return violated(allowed=["taken"], actual=f"refused: {said[0]}", where="a good run")
            if case and not any(word in line for line in said):
                told = f"refused for something else: {said[0]}" if said else "taken"
                allowed = [f"a refusal that says {word}"]
                return violated(allowed=allowed, actual=told, where=case, exercised=exercised + 1)
            exercised += bool(case)
        return held(exercised)

    return judge
