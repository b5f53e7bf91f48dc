"""The fake's side of the oracle: the same steps on the scheduler of its engine core, with the same far ends."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from fakes.engine.allowlist import ALLOW_LISTS
from fakes.engine.crash import Crash
from fakes.engine.engine_profile import EngineProfile
from fakes.engine.payload import PayloadError, open_payload
from fakes.engine.profiles import profile
from fakes.engine.protocol import (
    Barrier,
    Done,
    Effect,
    EngineConfig,
    Join,
    Observed,
    OpenPayload,
    Raised,
    ReadDisk,
    Recv,
)
from fakes.engine.request import Req, Sampling
from fakes.engine.scheduler import Scheduler
from fakes.tiny import NUMPY_DTYPES, tiny_config, tiny_weights
from real_runs.fuzz.payloads import NORM, NORM_SIZE, NamedStorages, pickled

Step = dict[str, Any]
Answer = dict[str, Any]
PEER_GONE = "the peer went away"
CONFIG = tiny_config("llama", dtype="float32")


@lru_cache(maxsize=1)
def _weights() -> dict[str, np.ndarray]:
    return tiny_weights(CONFIG, 0)


@lru_cache(maxsize=256)
def _opened(kind: str, allow: str, load_format: str | None, unpickle_only: bool) -> tuple[Any, Raised | None]:
    try:
        named = open_payload(
            pickled(kind),
            profile_allow=ALLOW_LISTS[allow],
            rank=0,
            load_format=load_format,
            resolver=NamedStorages(),
            unpickle_only=unpickle_only,
        )
    except PayloadError as error:
        return None, Raised(error.type, error.message)
    return named, None


class FakeUpdater:
    """One scheduler of the fake at tp 1; `do` performs a step and says what it did, as the oracle says it."""

    def __init__(self, version: str | EngineProfile) -> None:
        self._profile = profile(version) if isinstance(version, str) else version
        self._effects: list[Effect] = []
        self._replies: list[tuple[str, Any]] = []
        self._ids = self._requests = 0
        self._now = 0.0
        self._script: Step = {}
        self._finished: set[int] = set()
        config = EngineConfig(profile=self._profile.version, dtype="float32")
        self._s = Scheduler(
            config,
            self._profile,
            _weights(),
            CONFIG,
            send=lambda op, payload: self._replies.append((op, payload)),
            emit=self._effects.append,
            next_id=self._next_id,
        )

    def play(self, steps: list[Step]) -> list[Answer]:
        """Every step in order, up to the first exception."""
        out: list[Answer] = []
        for step in steps:
            out.append(self.do(step))
            if "raised" in out[-1]:
                break
        return out

    def do(self, step: Step) -> Answer:
        """One step: what the reply says and what is left, or what was raised."""
        self._effects.clear()
        self._replies.clear()
        self._script = step
        try:
            reply = self._perform(step)
        except Crash as error:
            return {"raised": [error.raised.type.rpartition(".")[2], error.raised.message]}
        except Exception as error:  # a scheduler dies of those, too
            return {"raised": [type(error).__name__, str(error)]}
        session = self._s.updater.session
        facts = [effect for effect in self._effects if isinstance(effect, Observed)]
        return {
            "success": reply.get("success"),
            "message": reply.get("message"),
            "session": None if session is None else [session.selector, session.loaded],
            "version": self._s.weight_version,
            "flushes": [fact.data["ok"] for fact in facts if fact.name == "flush"],
            "barriers": sum(isinstance(effect, Barrier) for effect in self._effects),
            "loads": sum(fact.name == "load" for fact in facts),
            "tags": self._s.memory.released(),
        }

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    def _perform(self, step: Step) -> dict[str, Any]:
        op = step["op"]
        if op == "generate":
            self._requests += 1
            sampling = Sampling(max_new_tokens=400, temperature=0.0, ignore_eos=True)
            req = Req(rid=f"r{self._requests}", prompt=[7, self._requests], sampling=sampling)
            return self._send(
                "generate", {"req": req}, until=lambda: self._s.paused or req in self._s.batch.in_flight()
            )
        if op == "pause":
            return self._send("pause", {"mode": step["mode"]}, until=lambda: self._s.paused)
        if op == "continue":
            return self._send("continue", {}, until=self._under_way)
        if op == "abort":
            idle = self._s.batch.is_idle
            return self._send("abort", {"rid": "", "abort_all": True}, until=lambda: self._s.paused or idle())
        body = dict(step.get("body", {}))
        if op == "update_weights_from_tensor":
            body["serialized_named_tensors"] = [kind.encode() for kind in body["serialized_named_tensors"]]
        if op == "flush_cache":
            body = {"timeout_s": None}
        reply = self._send(op, body)
        return {} if op == "update_weight_version" else reply

    def _under_way(self) -> bool:
        """Nothing waits any more, and what was to end has ended: an abort needs one more step."""
        batch = self._s.batch
        ending = any(req.to_finish is not None or req.finish is not None for req in batch.in_flight())
        return not self._s.paused and not batch.waiting and not ending

    def _send(self, op: str, obj: dict[str, Any], until: Any = None) -> dict[str, Any]:
        """Put it into the inbox and let time pass until it is answered, or until `until()` holds."""
        self._s.inbox.append((op, obj))
        while True:
            self._s.run(self._now)
            for effect in list(self._effects):
                if isinstance(effect, OpenPayload | ReadDisk | Join | Recv) and effect.id not in self._finished:
                    self._finished.add(effect.id)
                    self._s.done(self._done(effect))
            if not self._s.blocked:
                found = [payload for said, payload in self._replies if said == op]
                if found:
                    return dict(found[0])
                if until is not None and not self._s.inbox and until():
                    return {}
                deadline = self._s.next_deadline()
                if deadline is None:
                    return {}
                self._now = max(self._now, deadline)

    def _done(self, effect: OpenPayload | ReadDisk | Join | Recv) -> Done:
        """The far end, as the script has it."""
        script = self._script
        if isinstance(effect, OpenPayload):
            kind, allow = effect.data.decode(), self._profile.unpickler
            named, error = _opened(kind, allow, effect.load_format, effect.unpickle_only)
            return Done(effect.id, value=named, error=error)
        if isinstance(effect, ReadDisk):
            if script.get("fails"):
                return Done(effect.id, error=Raised("RuntimeError", script["cause"]))
            return Done(effect.id, value=[(NORM, np.ones(NORM_SIZE, np.float32))])
        if isinstance(effect, Join):
            return Done(effect.id, error=Raised("RuntimeError", script["join"]) if script.get("join") else None)
        if script.get("receive") == "raises" and effect.names:  # nothing is waited for where nothing was declared
            return Done(effect.id, error=Raised("RuntimeError", PEER_GONE))
        received = zip(effect.names, effect.dtypes, effect.shapes, strict=False)
        return Done(effect.id, value=[(n, np.zeros(s, NUMPY_DTYPES[d])) for n, d, s in received])
