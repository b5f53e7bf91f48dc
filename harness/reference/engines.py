"""What the client knows about each engine.

SGLang offers no way to ask whether a session is open or which memory tags are released, and a wrong guess kills it. So
knowledge is kept here, and by one habit: before a call the worst is assumed, and only a clear answer improves it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fakes.outcome import Outcome
from harness.reference.errors import CallFailed
from harness.sut.protocol import Endpoint

WEIGHT_TAGS = ("weights",)
KV_TAGS = ("kv_cache", "cuda_graph")
ALL_TAGS = KV_TAGS + WEIGHT_TAGS


class Session(enum.Enum):
    """A weight-update session as far as is known."""

    CLOSED = enum.auto()
    OPEN = enum.auto()
    UNKNOWN = enum.auto()


class Weights(enum.Enum):
    """WHOLE: one complete set. HOLLOW: undefined since released. TORN: a part of an update may have been applied."""

    WHOLE = enum.auto()
    HOLLOW = enum.auto()
    TORN = enum.auto()


@dataclass
class Engine:
    """One incarnation of one engine. `ranks` are the trainer ranks that feed its tp ranks, in tp order.

    Of this refit: `touched` since the first update call was sent, `complete` since the last one was confirmed.
    `lost` is the reason why nothing is sent to it any more, `reported` whether that was said.
    """

    endpoint: Endpoint
    ranks: tuple[int, ...]
    incarnation: int
    connected: bool = False
    paused: bool = False
    session: Session = Session.CLOSED
    end_was_sent: bool = False
    weights: Weights = Weights.WHOLE
    touched: bool = False
    complete: bool = False
    released: set[str] = field(default_factory=set)
    tags_known: bool = True
    lost: str = ""
    reported: bool = False

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return self.endpoint.name

    @property
    def may_serve(self) -> bool:
        """Whether traffic may be let in: weights, session and memory are in order."""
        return self.weights is Weights.WHOLE and self.session is Session.CLOSED and not self.released

    @property
    def why_not(self) -> str:
        """Why it may not serve."""
        if self.weights is not Weights.WHOLE:
            return f"its weights are {self.weights.name.lower()}"
        if self.session is not Session.CLOSED:
            return f"its session is {self.session.name.lower()}"
        return f"released: {', '.join(sorted(self.released))}"


class Roster:
    """The fleet as it is now. Trainer rank r holds GPU r; where endpoints name no GPUs, ranks are dealt in order.

    `trainer_ranks` None: the engines have GPUs of their own, and no trainer rank feeds one of them alone.
    """

    def __init__(self, endpoints: Sequence[Endpoint], trainer_ranks: int | None) -> None:
        self._engines: dict[str, Engine] = {}
        self._ranks: dict[str, tuple[int, ...]] = {}
        self._endpoints = endpoints
        if trainer_ranks is None:
            self._ranks = {endpoint.name: tuple(range(endpoint.tp)) for endpoint in endpoints}
            return
        taken: set[int] = set()
        for endpoint in endpoints:
            ranks = endpoint.gpu_ids or tuple(range(len(taken), len(taken) + endpoint.tp))
            if len(ranks) != endpoint.tp:
                raise ValueError(f"{endpoint.name} has tp {endpoint.tp} but {len(ranks)} GPUs")
            if taken & set(ranks):
                raise ValueError(f"{endpoint.name} shares GPU {min(taken & set(ranks))} with another engine")
            if not set(ranks) <= set(range(trainer_ranks)):
                raise ValueError(f"{endpoint.name} is on GPUs {ranks}, but the trainer has {trainer_ranks} ranks")
            taken |= set(ranks)
            self._ranks[endpoint.name] = ranks

    def __call__(self) -> list[Engine]:
        """One Engine per endpoint; a new incarnation is a new engine of which nothing is known but that it is new."""
        for endpoint in self._endpoints:
            known = self._engines.get(endpoint.name)
            if known is None or known.incarnation != endpoint.incarnation:
                self._engines[endpoint.name] = Engine(endpoint, self._ranks[endpoint.name], endpoint.incarnation)
        return list(self._engines.values())


Answers = list[tuple[Engine, Outcome]]


def ask(engines: Sequence[Engine], op: str, body: Any, timeout_s: float, *, method: str = "POST") -> Answers:
    """The same call to several engines at once; every answer is awaited, so none is outstanding afterwards."""
    return answered([(e, e.endpoint.start(op, body, method=method, timeout_s=timeout_s)) for e in engines])


Waits = list[tuple[Engine, Callable[[], Outcome]]]


def answered(waits: Waits) -> Answers:
    """Wait for the answers of calls that were started. Who refuses a connection is gone."""
    answers = [(e, wait()) for e, wait in waits]
    for e, outcome in answers:
        if outcome.ending == "refused":
            e.lost = "it is gone: connection refused"
    return answers


def any_refused(waits: Waits) -> bool:
    """Whether some call has already ended without a yes. Never waits: an endpoint that cannot tell says no."""
    return any(getattr(wait, "done", False) and not wait().ok for _, wait in waits)


def said_no(outcome: Outcome) -> bool:
    """Whether the engine declined, so that the call certainly had no effect. A 5xx does not say so."""
    return outcome.ending == "reply" and not outcome.ok and (outcome.status or 0) < 500


def raise_failed(phase: str, answers: Answers, kind: type[CallFailed] = CallFailed) -> None:
    """Raise for the engine that first did not say yes; the others' failures are notes."""
    failed = sorted(((e, o) for e, o in answers if not o.ok), key=lambda answer: answer[1].elapsed_s)
    errors = [kind(phase, e.name, outcome) for e, outcome in failed]
    for other in errors[1:]:
        errors[0].add_note(str(other))
    if errors:
        raise errors[0]
