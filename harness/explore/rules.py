"""The invariants of fault exploration as rules of a family of their own, EXPLORE, so that every report can show them.

They differ from a suite's rules in one thing: they compare a faulted history with the fault-free one of its scenario.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.explore.invariants import CHECKS, Check
from harness.explore.reading import Reading
from harness.history import History
from harness.rules import Rule, Verdict, held, violated

FAMILY = "EXPLORE"

TEXTS: Mapping[str, str] = {
    "one_session": "A begin opens, one end closes: no end that nothing opened, no two for one begin, no begin inside.",
    "complete_when_ok": (
        "A refit that reports success made the calls of a fault-free one, since its begin, on every engine it kept."
    ),
    "resumed": (
        "No engine stays paused for ever; after a failed refit, only one that may be torn, or is said to be held."
    ),
    "memory_back": "Every released tag is back before continue, and at the end.",
    "tokens_are_honest": (
        "No token from torn weights, from a cache of other weights, from released memory, or under a false label."
    ),
    "failure_is_told": "A call that failed for good fails its refit, and what the engine said is in the error.",
    "next_refit_succeeds": (
        "After a failed refit a fault-free one succeeds, unless the client is terminal or has no engine left."
    ),
    "in_time": "No refit outlives its deadline, and none hangs for ever.",
    "given_up_is_given_up": "Nothing is sent to an engine that the client gave up.",
}
"""What each invariant promises. Not their docstrings: an optimised Python has none."""


MENDS: Mapping[str, str] = {
    "one_session": (
        "track per engine whether a session may be open (after a begin's 200 or silence), and begin or end by that "
        "state alone"
    ),
    "complete_when_ok": (
        "do not skip or swallow a failed call: success may be reported only when every engine that is kept got all of "
        "the refit's calls"
    ),
    "resumed": (
        "continue every engine that holds whole weights in a finally, again until confirmed; say ENGINE_HELD or "
        "ENGINE_LOST of the rest"
    ),
    "memory_back": "resume released tags in a finally before continue, again where the answer was lost",
    "tokens_are_honest": (
        "after any failed call hold the engine paused until a complete set, a flush and its label are in, or give it up"
    ),
    "failure_is_told": (
        "raise when a call failed for good, with the engine's own message in the error; a later success of another "
        "call is no excuse"
    ),
    "next_refit_succeeds": (
        "clean up after a failure so that the next refit can begin: end the session, forget half-made state, resume "
        "memory, continue"
    ),
    "in_time": "bound every wait, retry loop and clean-up by one deadline that is taken when the refit begins",
    "given_up_is_given_up": (
        "drop an engine from the list of targets, and cancel what is in flight to it, when it is given up; no "
        "clean-up calls either"
    ),
}
"""What a trainer should do about each."""


FOLLOWS: Mapping[str, tuple[str, ...]] = {
    "one_session": ("SESS-1", "SESS-4", "SESS-71"),
    "complete_when_ok": ("NAME-71", "ERR-1"),
    "resumed": ("PAUSE-1", "PAUSE-2"),
    "memory_back": ("PAUSE-6", "MEM-1", "MEM-71"),
    "tokens_are_honest": ("NAME-71", "VERIF-1", "CACHE-4", "VER-4", "PART-1"),
    "failure_is_told": ("LIVE-2", "ERR-1", "PAUSE-2"),
    "next_refit_succeeds": ("SESS-1", "SESS-3", "SESS-71"),
    "in_time": ("LOCK-2", "LIVE-1"),
}
"""Rules of the suite that say more exactly what is wrong where the same history breaks them, too."""


def verdicts(history: History, recorded: History) -> dict[str, Verdict]:
    """Rule id -> what it says of `history`; `recorded` is the fault-free run of the same scenario.

    `exercised` counts the client's calls that met a fault: an invariant of a run without one says nothing, unless it
    is broken all the same.
    """
    faulted = sum(bool(call.fault) for call in history.calls(origin="sut"))
    reading, clean = Reading(history), Reading(recorded)
    out: dict[str, Verdict] = {}
    for rule, check in _CHECK_OF.items():
        broken = list(check(reading, clean))
        out[rule] = _violated(rule, faulted, broken[0].actual, broken[0].where) if broken else held(faulted)
    return out


def _violated(rule: str, faulted: int, actual: str, where: str) -> Verdict:
    return violated(allowed=[BY_ID[rule].text], actual=actual, where=where, exercised=max(1, faulted))


def _alone(history: History) -> Verdict:
    return Verdict("inconclusive", actual="judged by exploration only, beside the fault-free history")


def _rule(number: int, check: Check) -> Rule:
    return Rule(
        id=f"{FAMILY}-{number}",
        level="MUST",
        side="refit",
        text=TEXTS[check.__name__],
        versions="",
        citations=(f"fault exploration, invariant {check.__name__}",),
        judge=_alone,
        follows=FOLLOWS.get(check.__name__, ()),
        mend=MENDS[check.__name__],
    )


INVARIANTS: tuple[Rule, ...] = tuple(_rule(number, check) for number, check in enumerate(CHECKS, 1))
"""EXPLORE-1, EXPLORE-2, ... in the order of `invariants.CHECKS`; ids are never reused."""

BY_ID: Mapping[str, Rule] = {rule.id: rule for rule in INVARIANTS}
BY_NAME: Mapping[str, Rule] = {check.__name__: rule for check, rule in zip(CHECKS, INVARIANTS, strict=True)}
_CHECK_OF: Mapping[str, Check] = {rule.id: check for rule, check in zip(INVARIANTS, CHECKS, strict=True)}
