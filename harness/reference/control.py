"""The steps of the envelope, each over all engines at once, each updating what is known about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.reference.deadline import Deadline
from harness.reference.engines import (
    ALL_TAGS,
    KV_TAGS,
    WEIGHT_TAGS,
    Answers,
    Engine,
    Session,
    Weights,
    ask,
    raise_failed,
    said_no,
)
from harness.reference.errors import DeadlineSpent, NeverIdle
from harness.reference.profile import EngineProfile, PauseMode
from harness.sut.protocol import ClockLike

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
FLUSH_WITHIN_S = 30.0
CONTINUE_ATTEMPT_S = 10.0
SESSION_OPEN = "a weight-update session is already open"
NO_SESSION = "no weight-update session is open"


@dataclass
class Control:
    """Control calls to a fleet.

    `weights_survive_release`: the engines keep a CPU copy (--enable-weights-cpu-backup).
    """

    clock: ClockLike
    profile: EngineProfile
    pause_mode: PauseMode
    weights_survive_release: bool = False

    # -- acquiring ------------------------------------------------------------------------------------------------

    def connect(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """Every engine says who it is; only then is it part of the group."""
        answers = ask(engines, "model_info", None, deadline.work("connect"), method="GET")
        raise_failed("connect", answers)
        for e in engines:
            e.connected = True

    def pause(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """A pause that failed may have paused: until continued, every engine counts as paused."""
        timeout_s = deadline.work("pause")
        for e in engines:
            e.paused = True
        raise_failed("pause", ask(engines, "pause_generation", {"mode": self.pause_mode}, timeout_s))

    def flush(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """Until every engine has flushed. 400 is "not idle yet": a response precedes its request's leaving the batch.

        NeverIdle, with the engine's last reason, after 30 s or half of the time left.
        """
        until = self.clock.now() + min(FLUSH_WITHIN_S, deadline.work("flush") / 2)
        wait_s = FIRST_WAIT_S
        while True:
            answers = ask(engines, "flush_cache", None, deadline.work("flush"))
            raise_failed("flush", [(e, o) for e, o in answers if o.status != 400])
            busy = [(e, o) for e, o in answers if o.status == 400]
            if not busy:
                return
            if self.clock.now() + wait_s > until:
                raise_failed("flush", busy, NeverIdle)
            self.clock.sleep(wait_s)
            engines, wait_s = [e for e, _ in busy], min(wait_s * 2, LONGEST_WAIT_S)

    def begin(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """Open a session on each engine. One that was left open, by us or by a client that died, is closed first."""
        if not self.profile.sessions:
            return
        ours = [e for e in engines if e.session is Session.OPEN]
        if ours:
            self.end(ours, deadline.work("begin"))
        answers = self._begin(engines, deadline)
        left_open = [e for e, o in answers if o.status == 400 and SESSION_OPEN in o.text]
        if left_open:
            self.end(left_open, deadline.work("begin"))
            answers = [(e, o) for e, o in answers if e not in left_open] + self._begin(left_open, deadline)
        raise_failed("begin", answers)

    def _begin(self, engines: Sequence[Engine], deadline: Deadline) -> Answers:
        timeout_s = deadline.work("begin")
        for e in engines:
            e.session, e.end_was_sent = Session.UNKNOWN, False
        answers = ask(engines, "begin_weight_update", {}, timeout_s)
        for e, outcome in answers:
            if outcome.ok:
                e.session = Session.OPEN
            elif said_no(outcome):
                e.session = Session.CLOSED
        return answers

    def onload_weights(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """Memory for weights that were released; what it holds is undefined until a complete set was sent."""
        self._resume("onload_weights", engines, WEIGHT_TAGS, deadline.work("onload_weights"))

    def release(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """Give the trainer what memory it does not have yet. A busy engine dies of it: these are paused and flushed."""
        for tags, group in _by_tags(engines, lambda e: [t for t in ALL_TAGS if t not in e.released]):
            timeout_s = deadline.work("release")
            for e in group:
                e.tags_known = False
                if "weights" in tags and not self.weights_survive_release:
                    e.weights = Weights.HOLLOW
            answers = ask(group, "release_memory_occupation", {"tags": list(tags)}, timeout_s)
            for e, outcome in answers:
                if outcome.ok:
                    e.tags_known = True
                    e.released |= set(tags)
            raise_failed("release", answers)

    # -- giving back ----------------------------------------------------------------------------------------------

    def end(self, engines: Sequence[Engine], timeout_s: float) -> None:
        """Close the session, once: finalisation is not idempotent, so an end that got no answer is not repeated."""
        before = [e.session for e in engines]
        for e in engines:
            e.session, e.end_was_sent = Session.UNKNOWN, True
        answers = ask(engines, "end_weight_update", {}, timeout_s)
        for (e, outcome), session in zip(answers, before, strict=True):
            if outcome.ok or NO_SESSION in outcome.text:
                e.session = Session.CLOSED
            elif said_no(outcome):
                e.session = session
            if outcome.ok and e.complete:
                e.weights = Weights.WHOLE
        raise_failed("end", answers)

    def onload_kv(self, engines: Sequence[Engine], timeout_s: float) -> None:
        """The KV pool and the graphs, before anything may be served."""
        self._resume("onload_kv", engines, KV_TAGS, timeout_s)

    def _resume(self, phase: str, engines: Sequence[Engine], tags: Sequence[str], timeout_s: float) -> None:
        """Resume what is known to be released, once: an engine dies of resuming a tag that it has."""
        for wanted, group in _by_tags(engines, lambda e: [t for t in tags if t in e.released]):
            for e in group:
                e.tags_known = False
            answers = ask(group, "resume_memory_occupation", {"tags": list(wanted)}, timeout_s)
            for e, outcome in answers:
                if outcome.ok:
                    e.tags_known = True
                    e.released -= set(wanted)
            raise_failed(phase, answers)

    def resume_generation(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """Idempotent, so it is asked again until each engine confirms or no time is left."""
        waiting, wait_s = list(engines), FIRST_WAIT_S
        answers: Answers = []
        while waiting and (left := deadline.last()) > 0:
            answers = ask(waiting, "continue_generation", {}, min(CONTINUE_ATTEMPT_S, max(left / 4, left - 1.0)))
            for e, outcome in answers:
                e.paused = not outcome.ok
            waiting = [e for e, o in answers if not o.ok and o.ending != "refused"]
            if waiting:
                self.clock.sleep(min(wait_s, max(deadline.last(), 0.0)))
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
        if waiting and not answers:
            raise DeadlineSpent("continue: the refit's deadline is spent")
        raise_failed("continue", answers)


Tags = tuple[str, ...]


def _by_tags(engines: Sequence[Engine], wanted: Callable[[Engine], list[str]]) -> list[tuple[Tags, list[Engine]]]:
    """Engines that want the same tags, together; those that want none are left out."""
    groups: dict[Tags, list[Engine]] = {}
    for e in engines:
        groups.setdefault(tuple(wanted(e)), []).append(e)
    return [(tags, group) for tags, group in groups.items() if tags]
