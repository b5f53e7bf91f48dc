"""How a refit fails: each error says in which phase, on which engine and what the engine said."""

from __future__ import annotations

from fakes.outcome import Outcome


class RefitError(Exception):
    """A refit that failed; `phase` is set where it is known."""

    phase: str = ""


class CallFailed(RefitError):
    """An engine said no, or nothing. `outcome` is the whole answer."""

    def __init__(self, phase: str, engine: str, outcome: Outcome) -> None:
        answer = f"HTTP {outcome.status}: {outcome.text}" if outcome.ending == "reply" else describe(outcome)
        super().__init__(f"{phase} failed on {engine}: {answer}")
        self.phase = phase
        self.engine = engine
        self.outcome = outcome


class NeverIdle(CallFailed):
    """The engine refused to flush until the wait was over; the text is its last refusal."""


class BadState(RefitError):
    """The policy's weights cannot be a complete update: nothing is sent."""


class BadSetup(RefitError):
    """What the client was set up for cannot be done: nothing is called."""


class BrokenGather(RefitError):
    """A trainer rank contributed no payload."""


class DeadlineSpent(RefitError):
    """No time is left for the next step."""


class LockBusy(RefitError):
    """Somebody else was broadcasting until there was no time left."""


class GroupFailed(RefitError):
    """The group of trainer and engines could not be made, or a broadcast in it did not end."""


class StreamFailed(RefitError):
    """A stream between a trainer rank and an engine rank broke off, or could not be made."""


class StreamsDiffer(RefitError):
    """The ranks of one engine do not receive the same tensors in the same order."""


class NoEngines(RefitError):
    """Every engine of the fleet is lost."""


class Terminal(RefitError):
    """An earlier refit failed after its transfer had begun, and the policy is terminal."""


def describe(outcome: Outcome) -> str:
    """dropped, refused or timeout, with the reason where there is one."""
    return outcome.ending if outcome.error in ("", outcome.ending) else f"{outcome.ending} ({outcome.error})"
