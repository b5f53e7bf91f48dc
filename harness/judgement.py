"""What the rules say of one history, and which findings follow from which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from harness.errors import HarnessError, RefitcheckError
from harness.explore import rules as explored_rules
from harness.faults import Fault
from harness.history import History
from harness.places import Place, place_of
from harness.rules import Rule, Verdict, unsupported
from harness.suites import Book
from harness.units import Cause, Finding
from harness.versions import version_matches
from harness.words import one_line, told

HANGS = explored_rules.BY_NAME["in_time"]
"""The rule that a client breaks which does not come back: judged then in every run, explored or not."""


class Provider(Protocol):
    """As much of a lane as judging asks for."""

    @property
    def name(self) -> str:
        """The lane's name."""
        ...

    @property
    def provides(self) -> frozenset[str]:
        """The facts that it gives."""
        ...


class Judgement:
    """Judges histories of one lane by the rules of one book."""

    def __init__(self, book: Book, lane: Provider) -> None:
        self._book, self._lane = book, lane

    def findings(
        self,
        rules: Sequence[Rule],
        invariants: Sequence[Rule],
        faults: tuple[Fault, ...],
        history: History,
        clean: History | None,
    ) -> dict[str, Finding]:
        """Rule id -> finding; `clean` is the fault-free history that the invariants are judged beside.

        In a history that ends with a client that hung nothing is held, and whatever is violated follows from that.
        """
        verdicts = {rule.id: self.verdict(rule, history) for rule in rules}
        if invariants and clean is not None:
            every = explored_rules.verdicts(history, clean)
            verdicts |= {rule.id: every[rule.id] for rule in invariants}
        hung = hung_in(history)
        if hung:
            verdicts = {rule: unsettled(verdict, hung) for rule, verdict in verdicts.items()}
            verdicts[HANGS.id] = explored_rules.verdicts(history, history)[HANGS.id]
        return {
            rule: Finding(
                verdict,
                faults,
                causes=self._causes(rule, verdicts, history),
                place=place_of(verdict.where, history) if verdict.status == "violated" else None,
            )
            for rule, verdict in verdicts.items()
        }

    def verdict(self, rule: Rule, history: History) -> Verdict:
        """One rule's verdict; unsupported where the lane or the client gives less than its judge reads."""
        missing = missing_needs(rule, self._lane.provides)
        if missing:
            return unsupported(f"lane {self._lane.name} does not provide {', '.join(missing)}")
        unrecorded = sorted(need for need in rule.needs if need.startswith("trainer:") and not history.has(need))
        if unrecorded:
            return unsupported(f"{history.header.meta.get('sut') or 'the scenario'} records no {', '.join(unrecorded)}")
        try:
            verdict = rule.judge(history)
        except Exception as error:
            raise HarnessError(f"judge of {rule.id}: {reason(error)}") from error
        undeclared = _undeclared(rule, history) if verdict.status == "inconclusive" else []
        if undeclared:
            return unsupported(f"the adapter does not declare {', '.join(undeclared)} (Caps.optional)")
        return verdict

    def beside(self, verdicts: Mapping[str, Finding], history: History) -> dict[str, Place | None]:
        """Where else a history is broken, by rules of its client's side that its scenario does not name: rule -> place.

        They may rest on what that scenario does not do: good for the order of findings, never for a verdict.
        """
        out: dict[str, Place | None] = {}
        for rule in self._book.rules.values():
            told_ = rule.id in verdicts or rule.id in self._book.invariants or rule.side != "refit"
            if told_ or not version_matches(history.header.engine_version, rule.versions):
                continue
            try:
                verdict = self.verdict(rule, history)
            except HarnessError:
                continue
            if verdict.status != "unsupported":
                out[rule.id] = place_of(verdict.where, history) if verdict.status == "violated" else None
        return out

    def _causes(self, rule_id: str, verdicts: dict[str, Verdict], history: History) -> tuple[Cause, ...]:
        """The rules that a violated one follows from and that this very history breaks, exercised on purpose or not."""
        if verdicts[rule_id].status != "violated":
            return ()
        out: list[Cause] = []
        if rule_id != HANGS.id and HANGS.id in verdicts and hung_in(history):
            out.append(Cause(HANGS.id, verdicts[HANGS.id].actual))
        for cause in self._book.rules[rule_id].follows if rule_id in self._book.rules else ():
            rule = self._book.rules.get(cause)
            if rule is None:  # of a suite that is not there
                continue
            if cause not in verdicts and version_matches(history.header.engine_version, rule.versions):
                verdict = self.verdict(rule, history)
            else:
                verdict = verdicts.get(cause, Verdict("inconclusive"))
            if verdict.status == "violated":
                out.append(Cause(cause, verdict.actual))
        return tuple(out)


def _undeclared(rule: Rule, history: History) -> list[str]:
    """What of `Rule.asks` the adapter of a history does not declare; nothing where nobody wrote down what it does."""
    declared = [note.get("optional") for note in history.facts("caps", source="harness")]
    if not rule.asks or not declared or None in declared:
        return []
    return sorted(rule.asks - {str(word) for words in declared for word in words})


def hung_in(history: History) -> str:
    """Where a client was that did not come back; "" when all did."""
    return next((str(refit.data["hung"]) for refit in history.refits() if refit.data.get("hung")), "")


def unsettled(verdict: Verdict, hung: str) -> Verdict:
    """What is left of a verdict over a history in which the client hung: what did not break may still have."""
    if verdict.status not in ("held", "inconclusive"):
        return verdict
    return Verdict("inconclusive", actual=f"the client hung in {hung}")


def missing_needs(rule: Rule, provides: frozenset[str]) -> list[str]:
    """Which of the facts that a rule's judge reads a lane cannot give; calls and harness notes always are there."""
    always = ("call", "harness:", "trainer:")
    return sorted(need for need in rule.needs if not need.startswith(always) and need not in provides)


def reason(error: BaseException) -> str:
    """An error on one line; one of ours without its type."""
    return one_line(error) if isinstance(error, RefitcheckError) else told(error)
