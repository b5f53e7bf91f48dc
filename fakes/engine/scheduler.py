"""The scheduler: inbox, event loop, pause, abort, flush. All TP ranks in lockstep behind one object.

Control messages reach it between steps only. A handler that needs I/O is a generator: it yields effects and is resumed
with their results; until then the scheduler is blocked and does nothing else, as SGLang's single-threaded loop.
An exception in a handler is a `Crash`: nobody catches it and the engine dies (contract: a scheduler assertion is
never an HTTP status).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from fakes.engine import messages as m
from fakes.engine.batching import Batch, Forward
from fakes.engine.cache import PrefixCache
from fakes.engine.crash import Crash, crash
from fakes.engine.engine_profile import EngineProfile
from fakes.engine.flushing import DeferredFlush
from fakes.engine.late_ranks import LateRanks
from fakes.engine.load import Load
from fakes.engine.lora_manager import LoraManager
from fakes.engine.memo import model_key
from fakes.engine.memory import Memory
from fakes.engine.model import Model
from fakes.engine.protocol import AnyOf, Block, Done, Effect, EngineConfig, Observed
from fakes.engine.request import Req, aborted, eos_ids
from fakes.engine.server_info import internal_state
from fakes.engine.watchdog import Watchdog
from fakes.engine.weight_update import WeightUpdater
from fakes.engine.weights import check_kernels, loaded_ranks, state_id_of

LONGEST_SLEEP_S = (2**63 - 1) // 10**9
"""time.sleep takes nanoseconds in 64 bits."""

IO = Generator[list[Any], dict[int, Done], Any]
"""A handler under way: yields I/O effects, gets back what each ended with, returns the reply."""

Send = Callable[[str, Any], None]
"""Deliver an output to the tokenizer manager: (operation or "batch" / "abort" / "health", payload)."""


class Scheduler:
    """One engine's schedulers, TP ranks in lockstep. `send` delivers to the tokenizer manager, `emit` effects to the
    front."""

    def __init__(
        self,
        config: EngineConfig,
        profile: EngineProfile,
        weights: Mapping[str, np.ndarray],
        model_config: Mapping[str, Any],
        *,
        send: Send,
        emit: Callable[[Effect], None],
        next_id: Callable[[], int],
    ) -> None:
        self.config = config
        self.profile = profile
        self.model_config = model_config
        self.send = send
        self.emit = emit
        self.next_id = next_id
        self.now = 0.0
        self.inbox: deque[tuple[str, dict[str, Any]]] = deque()
        self.paused = False
        self.weight_version = config.weight_version
        self.ranks = loaded_ranks(config, model_config, weights)
        self.model = Model(model_config, self.ranks)
        self.cache = PrefixCache(config.max_total_tokens)
        self.lora = LoraManager(self) if config.enable_lora else None
        self.batch = Batch(
            self.model,
            self.cache,
            profile=profile,
            device=config.device,
            max_running=config.max_running_requests,
            max_tokens=config.max_total_tokens,
            eos=eos_ids(model_config),
            seed=config.random_seed,
            model_key=model_key(model_config, config.tp_size, config.dtype + config.quantisation),
            observe=self._observe_request,
            lora=self.lora,
        )
        self.load = Load(self.batch)
        self.memory = Memory(self)
        self.updater = WeightUpdater(self, weights)
        self.late = LateRanks(self, config.random_seed)
        self.forward: Forward | None = None
        self._io: tuple[IO, str, dict[int, Done | None]] | None = None
        self._any = False
        self._deferred = DeferredFlush(self)
        self._settles_at: float | None = None
        self._health_waiting = False
        self._state: tuple[int, str] = (-1, "")
        self._watchdog = Watchdog(config.watchdog_timeout)
        self._sleep_s = 0.0
        self._handlers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "generate": self._generate,
            "abort": self._abort,
            "pause": self._pause,
            "continue": self._continue,
            "flush_cache": self._deferred.handle,
            "update_weight_version": self._set_version,
            "server_info": self._internal_state,
            "slow_down": self._slow_down,
            "get_load": self.load.now,
            **(self.lora.handlers() if self.lora is not None else {}),
            **self.memory.handlers(),
            **self.updater.handlers(),
        }

    def state_id(self) -> str:
        """16 hex digits of all parameters of all ranks; computed again only after a change."""
        version = sum(rank.version for rank in self.ranks)
        if self._state[0] != version:
            self._state = (version, state_id_of(self.ranks))
        return self._state[1]

    @property
    def blocked(self) -> bool:
        """Whether an I/O effect is outstanding."""
        return self._io is not None

    def observe(self, name: str, **data: Any) -> None:
        """Write a core fact."""
        self.emit(Observed(name, data))

    def _observe_request(self, req: Req, event: str) -> None:
        self.observe("request", rid=req.rid, event=event)

    def done(self, event: Done) -> None:
        """The front finished an I/O effect."""
        if self.late.busy and self.late.done(event):
            return
        if self._io is None or event.id not in self._io[2]:
            return
        self._io[2][event.id] = event

    def run(self, now: float) -> bool:
        """Do all that can be done at `now`; says whether anything was. Raises `Crash`."""
        self.now = max(self.now, now)
        progressed = False
        while True:
            if self.late.busy:
                progressed = self.late.run() or progressed
            if self._io is not None:
                if not self._resume():
                    self._watchdog.check(self.now)
                    return progressed
                progressed = True
                continue
            if self.forward is not None and self._step_done():
                progressed = True  # messages that came during the step see its batch before it is cleaned up
                continue
            if self.forward is not None or self.late.awaited(self.inbox[0][0] if self.inbox else None):
                return progressed
            if self.inbox:
                progressed = True
                self._handle(*self.inbox.popleft())
                continue
            self._deferred.check()
            self._watchdog.check(self.now)
            if self.paused:
                return progressed
            if not self._launch():
                self.load.publish()
                return progressed
            progressed = True

    def next_deadline(self) -> float | None:
        """When this scheduler next has something to do without being asked."""
        late = self.late.deadline
        if self._io is not None:
            return min((t for t in (self._watchdog.deadline, late) if t is not None), default=None)
        times = [] if late is None else [late]
        if self.forward is not None:
            times.append(self.forward.done_at)
        elif self._settles_at is not None:
            times.append(self._settles_at)
        elif self._watchdog.deadline is not None:
            times.append(self._watchdog.deadline)
        if self._deferred.deadline is not None and self.forward is None:
            times.append(self._deferred.deadline)
        return min(times, default=None)

    def _handle(self, op: str, obj: dict[str, Any]) -> None:
        outcome = self._handlers[op](obj)
        if isinstance(outcome, Generator):
            self._start(outcome, op)
        elif outcome is not None:
            self.send(op, outcome)

    def _start(self, io: IO, op: str) -> None:
        try:
            effects = next(io)
        except StopIteration as stop:
            self.send(op, stop.value)
        else:
            self._wait(io, op, effects)

    def _wait(self, io: IO, op: str, effects: Sequence[Any]) -> None:
        earlier = dict(effects.earlier) if isinstance(effects, AnyOf) else {}
        self._any = isinstance(effects, AnyOf)
        self._io = (io, op, {**earlier, **dict.fromkeys(effect.id for effect in effects)})
        if self.batch.last:
            self._watchdog.stopped("block", self.now)
        for effect in effects:
            self.emit(effect)
            self.emit(Block(getattr(effect, "rank", 0), effect.id))

    def _resume(self) -> bool:
        assert self._io is not None
        io, op, results = self._io
        found = {key: value for key, value in results.items() if value is not None}
        if len(found) < (1 if self._any else len(results)):
            return False
        self._io = None
        self._watchdog.goes_on("block")
        try:
            effects = io.send(found)
        except StopIteration as stop:
            self.send(op, stop.value)
        else:
            self._wait(io, op, effects)
        return True

    def _launch(self) -> bool:
        if not self.batch.waiting and not self.batch.running and not self.batch.last:
            return False
        if self._stale():
            return False
        if self.late.busy:
            self.late.begin_step()
            return False
        self.memory.check_serving()
        check_kernels(self.ranks, len(self.batch.waiting[0].prompt) if self.batch.waiting else len(self.batch.running))
        if self._sleep_s > LONGEST_SLEEP_S:
            raise crash(m.SLEEP_TOO_LONG)
        facts = {
            "released": self.memory.released(),
            "session_open": self.updater.session is not None,
            "torn": self.updater.torn,
        }
        self.forward = self.batch.launch(
            self.now,
            weights=self.state_id(),
            prefill_s=self.profile.prefill_step_s + self._sleep_s,
            decode_s=self.profile.decode_step_s + self._sleep_s,
            facts=facts,
        )
        return self.forward is not None

    def _stale(self) -> bool:
        """Hold on to a batch whose last response was sent (`stale_batch_steps`, sgl-project/sglang#14062).

        SGLang cleans up when it puts the next batch together: a flush or an update that comes before, and nothing says
        that it will not, finds the engine busy although its client has every answer.
        """
        steps = self.config.stale_batch_steps
        batch = self.batch
        if not steps or batch.waiting or any(r.finish is None for r in batch.in_flight()):
            self._settles_at = None
            return False
        if self._settles_at is None:
            self._settles_at = self.now + steps * self.profile.decode_step_s
        if self.now < self._settles_at:
            return True
        self._settles_at = None
        return False

    def _step_done(self) -> bool:
        forward = self.forward
        if forward is None or self.now < forward.done_at:
            return False
        self.forward = None
        self.load.publish()
        reqs = self.batch.complete(forward)
        for step in forward.steps:
            self.observe(
                "serve",
                rid=step.req.rid,
                phase=forward.phase,
                token=step.token,
                weights=forward.weights,
                kv=list(step.kv_states),
                **forward.facts,
            )
        items = [self._item(req) for req in reqs if req.should_output()]
        for req in reqs:
            if req.finish is not None:
                self._observe_request(req, "aborted" if req.finish["type"] == "abort" else "finished")
        if items:
            self.send("batch", items)
        if self._health_waiting:
            self._health_waiting = False
            self.send("health", None)
        return True

    def _item(self, req: Req) -> dict[str, Any]:
        """What one request reports of this step."""
        visible = req.visible()
        new, req.sent = visible[req.sent :], len(visible)
        return {
            "rid": req.rid,
            "finish": req.finish,
            "prompt_tokens": len(req.prompt),
            "output_ids": new,
            "completion_tokens": len(visible),
            "cached_tokens": req.cached_tokens,
            "num_retractions": req.retractions,
            "input_rows": req.input_rows,
            "output_rows": req.output_rows[: len(visible)],
            "spans": req.spans(self.weight_version) if self.profile.spans and req.finish is not None else None,
        }

    def _generate(self, obj: dict[str, Any]) -> None:
        req: Req = obj["req"]
        if req.health and not self.batch.is_idle():
            self._health_waiting = True
            return
        if any(not 0 <= token < self.model.vocab_size for token in req.prompt):
            message = m.VOCAB_RANGE if self.config.device == "cpu" else m.VOCAB_ASSERT
            req.prompt = [self.model.vocab_size if not 0 <= t < self.model.vocab_size else t for t in req.prompt]
            self.batch.waiting.append(req)
            if not self.paused:
                raise crash(message)
            return
        self.batch.waiting.append(req)
        self._observe_request(req, "queued")

    def _abort(self, obj: dict[str, Any]) -> None:
        """managers/scheduler.py:5675@0.5.23: queued requests go at once, running ones after one more step."""
        rid, everything = obj["rid"], obj["abort_all"]

        def hit(req: Req) -> bool:
            return everything or req.rid.startswith(rid)

        for req in [r for r in self.batch.waiting if hit(r)]:
            self.batch.waiting.remove(req)
            self._observe_request(req, "aborted")
            spans = req.spans(self.weight_version) if self.profile.spans else None
            self.send("abort", {"rid": req.rid, "spans": spans, "rows": req.output_rows, "health": req.health})
        for req in self.batch.in_flight():
            if req.finish is None and hit(req):
                req.to_finish = aborted()

    def _pause(self, obj: dict[str, Any]) -> None:
        """managers/scheduler.py:5817@0.5.23. Only a caller in process gets here with a mode that does not exist."""
        if obj["mode"] not in ("in_place", "retract"):
            raise Crash("AssertionError", "")
        self.paused = True
        if obj["mode"] == "in_place":
            if self.batch.running or self.batch.last:
                self._watchdog.stopped("pause", self.now)
            return
        self._watchdog.goes_on("pause")
        self.batch.retract_all()

    def _continue(self, obj: dict[str, Any]) -> None:
        self.paused = False
        self._watchdog.goes_on("pause")

    def flush(self) -> bool:
        """Flush the prefix cache if nothing uses it (managers/scheduler.py:5518@0.5.23)."""
        ignore = self.paused and self.profile.idle_ignores_queue_when_paused
        ok = self.batch.is_idle(ignore_waiting=ignore)
        if ok:
            self.batch.last, self.batch.last_is_prefill = [], False
            self.cache.flush()
        running = len(self.batch.running) or len(self.batch.last)
        reason = "" if ok else f"#queue-req: {len(self.batch.waiting)}, #running-req: {running}"
        self.observe("flush", ok=ok, reason=reason)
        return ok

    def record_version(self, version: str | None) -> None:
        """Note a new weight version, and on every live request that has output where it begins
        (managers/scheduler.py:5636@0.5.23)."""
        if not self.profile.spans or version is None or version == self.weight_version:
            return
        old, self.weight_version = self.weight_version, version
        for req in self.batch.live():
            if req.output:
                req.version_events.append((old, len(req.output)))
        self.observe("version", owner="scheduler", value=version)

    def _set_version(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.record_version(obj["new_version"])
        return {"success": True, "message": ""}

    def _internal_state(self, obj: dict[str, Any]) -> dict[str, Any]:
        return internal_state(self.config, self.profile, self.weight_version)

    def _slow_down(self, obj: dict[str, Any]) -> dict[str, Any]:
        """managers/scheduler.py:6102@0.5.23: nothing, or nothing above zero, is no sleep."""
        self._sleep_s = max(float(obj.get("forward_sleep_time") or 0.0), 0.0)
        return {"success": True, "message": ""}
