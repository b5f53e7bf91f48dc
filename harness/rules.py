"""Rules and verdicts: what is promised, and what a history says about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from harness.history import History

Level = Literal["MUST", "SHOULD"]
Status = Literal["held", "violated", "inconclusive", "unsupported"]
Side = Literal["engine", "refit"]

# The worst of several verdicts is the first of these that occurs; "held" needs at least one that held.
_WORST: tuple[Status, ...] = ("violated", "held", "inconclusive", "unsupported")


@dataclass(frozen=True)
class Verdict:
    """What one judge says of one history.

    `allowed` and `actual` are text for a person; `where` names the place (engine, call, virtual time).
    `exercised` counts how often the rule's precondition really occurred. `missing` says what an unsupported rule lacks.
    """

    status: Status
    exercised: int = 0
    allowed: tuple[str, ...] = ()
    actual: str = ""
    where: str = ""
    missing: str = ""


def held(exercised: int) -> Verdict:
    """Held, `exercised` times; never exercised is inconclusive, not a pass."""
    return Verdict("held" if exercised else "inconclusive", exercised=exercised)


def violated(*, allowed: Iterable[str], actual: str, where: str, exercised: int = 1) -> Verdict:
    """Violated: the allowed set, the one actual, and where."""
    return Verdict("violated", exercised=exercised, allowed=tuple(allowed), actual=actual, where=where)


def unsupported(missing: str) -> Verdict:
    """The lane or the adapter lacks what the rule needs; `missing` names it."""
    return Verdict("unsupported", missing=missing)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict over several histories: violated wins; held only if at least one held."""
    found: dict[str, Verdict] = {}
    exercised = 0
    for verdict in verdicts:
        exercised += verdict.exercised
        found.setdefault(verdict.status, verdict)
    for status in _WORST:
        if status in found:
            best = found[status]
            return Verdict(status, exercised, best.allowed, best.actual, best.where, best.missing)
    return Verdict("inconclusive")


@dataclass(frozen=True)
class Rule:
    """One promise. `versions` is a PEP 440 specifier, or "" for all; `needs` are fact and record names the judge reads
    (each "core:x", "probe:x", "trainer:x" or "call"). `black_box` is "" when the judge works from calls, probes and
    traffic alone, else the line that says why no such judge can exist.

    `follows` are ids of rules whose breach accounts for a breach of this one in the same history: of a refit that left
    out a tensor, wrong content is what follows and the tensor's name is what to mend. Reports put the cause first.

    `echoes` are ids of more general rules: where one of them is broken in a plainer scenario too, a breach of this one
    in its own is likely the same defect. Reports say so, and put it last.

    `asks` are words of `Caps.optional` without which a client need not bring the precondition about: where it never
    occurred and the adapter does not declare one of them, the rule is unsupported.

    `mend` says on one line what to do where the rule is broken: what a trainer should do, or where an engine's
    developer should look.

    `speaks_of` are what a client must do for the precondition to occur at all, each an operation ("flush_cache") or a
    field of any of its calls (":weight_version"): of a client that did none of them in any refit reports say so.
    """

    id: str
    level: Level
    side: Side
    text: str
    versions: str
    citations: tuple[str, ...]
    judge: Callable[[History], Verdict]
    needs: frozenset[str] = frozenset()
    black_box: str = ""
    follows: tuple[str, ...] = ()
    echoes: tuple[str, ...] = ()
    asks: frozenset[str] = frozenset()
    mend: str = ""
    speaks_of: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """SESS of SESS-1."""
        return self.id.rsplit("-", 1)[0]


@dataclass
class RuleBook:
    """All rules of the loaded suites, by id."""

    rules: dict[str, Rule] = field(default_factory=dict)

    def add(self, rules: Iterable[Rule]) -> None:
        """Add rules; ValueError when an id is taken."""
        for rule in rules:
            if rule.id in self.rules:
                raise ValueError(f"rule {rule.id} is defined twice; ids are never reused")
            self.rules[rule.id] = rule

    def families(self) -> Mapping[str, list[Rule]]:
        """Rules by family, in the order of their ids."""
        out: dict[str, list[Rule]] = {}
        for rule in self.rules.values():
            out.setdefault(rule.family, []).append(rule)
        return out
