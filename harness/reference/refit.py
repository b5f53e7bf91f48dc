"""The envelope of a refit, and what becomes of engines when one fails.

What the declared policy means on a real SGLang, which has no rollback, no way to ask whether a session is open, and no
way to keep traffic out but the pause:

resume      The fleet comes back by itself. An engine to which nothing was applied still has its old weights: session
            closed, memory back, continued at once. One to which something was applied has weights that nobody can undo:
            session closed and memory back, but it stays paused (requests wait, none is lost) until the next refit has
            sent a complete set. The caller retries; nothing is restarted.
quarantine  Such an engine is lost: nothing is ever sent to this incarnation again. It stays paused, and whoever runs
            the fleet replaces it. The others come back as under resume, and later refits go on without the lost one.
terminal    Before the first update call a failure gives everything back and may be retried. From then on any failure
            latches: nothing more is sent to any engine, all stay paused, later refits raise Terminal.

Under every policy an engine is lost when its state cannot be known any more: a resume_memory_occupation without a clear
yes (asking twice kills it), or, on a build that dies of an unmatched end, a begin or end without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from harness.reference.control import Control
from harness.reference.deadline import Deadline
from harness.reference.engines import Engine, Session, Weights
from harness.reference.errors import BadState, NoEngines, Terminal
from harness.reference.guards import Guards
from harness.reference.markers import Markers
from harness.reference.transports import Transport
from harness.sut.protocol import Policy, RefitResult


class Trainer(Protocol):
    """What the envelope asks of the trainer itself."""

    def live_exports(self) -> int:
        """Exports that nobody has released."""
        ...


class RefitClient:
    """Pushes whole states to a fleet. `roster()` gives the engines as they are; a new incarnation is a new Engine."""

    def __init__(
        self,
        control: Control,
        trainer: Trainer,
        markers: Markers,
        roster: Callable[[], Sequence[Engine]],
        transport: Transport,
        *,
        policy: Policy,
    ) -> None:
        self.control = control
        self.trainer = trainer
        self.markers = markers
        self.transport = transport
        self.policy = policy
        self.version: str | None = None
        self.index = 0
        self.terminal: str = ""
        self._roster = roster
        self._names: frozenset[str] = frozenset()
        self._engines: list[Engine] = []

    # -- one refit ------------------------------------------------------------------------------------------------

    def refit(self, state: Mapping[str, Any], version: str, deadline: Deadline) -> RefitResult:
        """Send `state` to every engine as `version`. Raises the first error; its notes tell what failed after it."""
        self.index += 1
        with self.markers.refit(transfer=self.transport.name, index=self.index, version=version):
            self._muster()
            self._check(state)
            calls = self._envelope(state, version, deadline)
        lost = [e.name for e in self._roster() if e.lost]
        return RefitResult(version=version, buckets=calls, detail=f"without {', '.join(lost)}" if lost else "")

    def _envelope(self, state: Mapping[str, Any], version: str, deadline: Deadline) -> int:
        """What acquires something comes after its guard, so that a part of it is given back as well."""
        engines, control = self._engines, self.control
        with Guards() as guards:
            guards.hold("report", self._report_lost)
            guards.hold("confirm", lambda: self._confirm(guards, deadline))
            guards.hold("offload", self._offload)
            guards.hold("continue", lambda: self._continue(guards, deadline))
            guards.hold("onload_kv", lambda: self._onload_kv(guards, deadline))
            self._phase("onload_weights")
            control.onload_weights(engines, deadline)
            self._phase("connect")
            self._connect(deadline)
            self._phase("pause")
            control.pause(engines, deadline)
            self._phase("flush")
            control.flush(engines, deadline)
            self._phase("begin")
            guards.hold("end", lambda: self._end(guards, state, version, deadline))
            control.begin(engines, deadline)
            self._phase("transfer")
            return self.transport.send(engines, deadline, state, version)

    def offload(self, deadline: Deadline) -> None:
        """Give the engines' memory to the trainer: pause, prove idle, release. Only a refit lets traffic in again."""
        self._phase("release")
        self._muster()
        with Guards() as guards:
            guards.hold("report", self._report_lost)
            guards.hold("continue", lambda: self._continue(guards, deadline))
            self.control.pause(self._engines, deadline)
            self.control.flush(self._engines, deadline)
            self.control.release(self._engines, deadline)

    def close(self) -> None:
        """Leave nothing behind on the engines that are still ours."""
        if not self.terminal:
            self.transport.close([e for e in self._roster() if not e.lost])

    # -- before anything is sent ----------------------------------------------------------------------------------

    def _check(self, state: Mapping[str, Any]) -> None:
        if not state:
            raise BadState("the policy's state is empty")
        missing = sorted(self._names - set(state))
        if missing:
            raise BadState(f"the state lacks {len(missing)} tensors of the last complete one: {', '.join(missing[:3])}")

    def _muster(self) -> None:
        if self.terminal:
            raise Terminal(f"an earlier refit failed for good: {self.terminal}")
        roster = list(self._roster())
        self._engines = [e for e in roster if not e.lost]
        if not self._engines:
            raise NoEngines("no engine is left: " + "; ".join(f"{e.name}: {e.lost}" for e in roster))
        for e in self._engines:
            e.touched = e.complete = False

    def _connect(self, deadline: Deadline) -> None:
        new = [e for e in self._engines if not e.connected]
        if new:
            self.control.connect(new, deadline)
        if self.transport.connect(self._engines, deadline) or new:
            self.markers.group_ready(self.transport.world_size(self._engines), [e.name for e in self._engines])

    # -- giving back, in this order -------------------------------------------------------------------------------

    def _end(self, guards: Guards, state: Mapping[str, Any], version: str, deadline: Deadline) -> None:
        engines = [e for e in self._callable("end", guards) if self._wants_end(e)]
        if engines and self.control.profile.sessions:
            self.control.end(engines, deadline.giving_back("end"))
        elif not self.control.profile.sessions:
            for e in engines:
                e.weights = Weights.WHOLE
        if guards.error is None:
            self.version, self._names = version, frozenset(state)

    def _onload_kv(self, guards: Guards, deadline: Deadline) -> None:
        engines = [e for e in self._callable("onload_kv", guards) if e.released]
        if engines:
            self.control.onload_kv(engines, deadline.giving_back("onload_kv"))

    def _continue(self, guards: Guards, deadline: Deadline) -> None:
        paused = [e for e in self._callable("continue", guards) if e.paused]
        for e in paused:
            if guards.error is not None and not e.may_serve:
                self.markers.engine("ENGINE_HELD", e.name, e.incarnation, e.why_not)
        self.control.resume_generation([e for e in paused if e.may_serve], deadline)

    def _confirm(self, guards: Guards, deadline: Deadline) -> None:
        """What a transport has yet to learn of engines that run again; after an error there is nothing to learn."""
        if guards.error is None:
            self._phase("confirm")
            self.transport.confirm([e for e in self._engines if not e.lost and not e.paused], deadline)

    def _offload(self) -> None:
        self.markers.offloaded(self.trainer.live_exports())

    # -- the policy -----------------------------------------------------------------------------------------------

    def _callable(self, phase: str, guards: Guards) -> list[Engine]:
        """Engines that giving back may still call; settles first what the error, if any, has made of them."""
        if guards.error is None:
            self._phase(phase)
        elif self.policy == "terminal" and any(e.touched for e in self._engines):
            self._latch(guards.error)
        if self.terminal:
            return []
        for e in self._engines:
            e.lost = e.lost or self._lost_because(e, failed=guards.error is not None)
        self._report_lost()
        return [e for e in self._engines if not e.lost]

    def _lost_because(self, e: Engine, *, failed: bool) -> str:
        if not e.tags_known:
            return "which memory tags it has is unknown"
        if e.session is Session.UNKNOWN and not self.control.profile.end_can_be_asked:
            return "whether its session is open is unknown"
        if not failed or self.policy != "quarantine":
            return ""
        if e.weights is Weights.TORN and (e.end_was_sent or not e.complete):
            return "a part of an update may have been applied"
        if e.session is Session.UNKNOWN and e.end_was_sent:
            return "whether its session is open is unknown"
        return ""

    def _wants_end(self, e: Engine) -> bool:
        """A session that is or may be open and was not ended yet; without sessions, a complete set."""
        if not self.control.profile.sessions:
            return e.complete
        return e.session is not Session.CLOSED and not e.end_was_sent

    def _report_lost(self) -> None:
        for e in self._engines:
            if e.lost and not e.reported:
                e.reported = True
                self.markers.engine("ENGINE_LOST", e.name, e.incarnation, e.lost)

    def _latch(self, error: BaseException) -> None:
        if not self.terminal:
            self.terminal = f"{type(error).__name__}: {error}"
            self.markers.terminal(self.terminal)

    def _phase(self, phase: str) -> None:
        self.markers.phase = phase
