"""Drives one EngineCore over virtual time and performs its I/O from tables: no world, no pickle, no torch."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fakes.engine.core import EngineCore
from fakes.engine.protocol import (
    Block,
    Broken,
    Call,
    Cancel,
    Die,
    Done,
    Effect,
    EngineConfig,
    Join,
    Observed,
    OpenPayload,
    Raised,
    ReadDisk,
    Recv,
    Reply,
    Tick,
    Token,
)
from fakes.outcome import Outcome
from fakes.tiny import tiny_config, tiny_weights

PROMPT = [5, 6, 7, 8, 9]
Named = Mapping[str, np.ndarray]


def generate_body(n: int = 8, prompt: Sequence[int] = PROMPT, **more: Any) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_new_tokens": n, "ignore_eos": True}
    return {"input_ids": list(prompt), "sampling_params": sampling, **more}


class Driver:
    """One engine. `hang` names I/O effects (OpenPayload, Join, Recv, ReadDisk) that the front never finishes."""

    def __init__(self, version: str = "0.5.23", *, shape: str = "llama", seed: int = 0, **config: Any) -> None:
        self.model_config = tiny_config(shape, False, "bfloat16")
        self.config = EngineConfig(profile=version, model_path="/models/tiny", **config)
        self.core = EngineCore(self.config, self.weights(seed), self.model_config)
        self.now = 0.0
        self.facts: list[Observed] = []
        self.effects: list[Effect] = []
        self.hang: set[str] = set()
        self.hung: list[OpenPayload | Join | Recv | ReadDisk] = []
        self.join_error: Raised | None = None
        self.broadcast: list[tuple[str, np.ndarray]] | Raised = []
        self.disk: dict[str, list[tuple[str, np.ndarray]]] = {}
        self.died: Die | None = None
        self.died_at = 0.0
        self._payloads: dict[bytes, list[tuple[str, np.ndarray]] | Raised] = {}
        self._replies: dict[int, Outcome] = {}
        self._chunks: dict[int, list[Any]] = {}
        self._started: dict[int, float] = {}
        self._next = 0

    def weights(self, seed: int) -> dict[str, np.ndarray]:
        return tiny_weights(self.model_config, seed)

    def payload(self, named: Named | Raised, *, name: str = "") -> str:
        """The base64 text of a payload that opens as `named`, or raises."""
        data = b"\x80\x04" + f"{name}{len(self._payloads)}".encode()
        self._payloads[data] = named if isinstance(named, Raised) else list(named.items())
        return base64.b64encode(data).decode()

    def start(
        self,
        op: str,
        body: Any = None,
        *,
        method: str = "POST",
        query: Mapping[str, str] | None = None,
        bearer: str | None = None,
        via: Any = "http",
        raw: bytes | None = None,
        content_type: str = "application/json",
    ) -> int:
        self._next += 1
        call = self._next
        if via == "http" and raw is None and body is not None:
            raw = json.dumps(body).encode()
        self._started[call] = self.now
        self._chunks[call] = []
        event = Call(
            id=call,
            path="/" + op,
            method=method,
            body=raw if via == "http" else body,
            query=dict(query or {}),
            bearer=bearer,
            content_type=content_type,
            via=via,
        )
        self._absorb(self.core.step(event, self.now))
        return call

    def call(self, op: str, body: Any = None, *, timeout: float = 120.0, **options: Any) -> Outcome:
        return self.result(self.start(op, body, **options), timeout)

    def result(self, call: int, timeout: float = 120.0) -> Outcome:
        """Let time run until the call ended, at most `timeout` seconds from now."""
        limit = self.now + timeout
        while call not in self._replies:
            if self.died is not None:
                return Outcome(ending="dropped", elapsed_s=self.now - self._started[call])
            due = self.core.next_deadline()
            if due is None or due > limit:
                self.now = limit
                if due is not None:
                    self._absorb(self.core.step(Tick(), self.now))
                return self._replies.get(call, Outcome(ending="timeout", elapsed_s=timeout))
            self.now = max(self.now, due)
            self._absorb(self.core.step(Tick(), self.now))
        return self._replies[call]

    def done(self, call: int) -> bool:
        return call in self._replies

    def chunks(self, call: int) -> list[Any]:
        return self._chunks[call]

    def advance(self, seconds: float) -> None:
        limit = self.now + seconds
        while (due := self.core.next_deadline()) is not None and due <= limit:
            self.now = max(self.now, due)
            self._absorb(self.core.step(Tick(), self.now))
        self.now = limit
        self._absorb(self.core.step(Tick(), self.now))

    def cancel(self, call: int) -> None:
        self._absorb(self.core.step(Cancel(call), self.now))

    def finish_reads(self) -> None:
        """Finish the I/O that hung."""
        hung, self.hung = self.hung, []
        for effect in hung:
            self._perform(effect)

    def generate(self, n: int = 8, prompt: Sequence[int] = PROMPT, **more: Any) -> list[int]:
        reply = self.call("generate", generate_body(n, prompt, **more))
        assert reply.status == 200, reply
        tokens: list[int] = reply.body["output_ids"]
        return tokens

    def update(self, named: Named | None = None, *, seed: int = 1, **fields: Any) -> Outcome:
        """One whole update of all ranks with the same full tensors, inside a session where the version has them."""
        text = self.payload(self.weights(seed) if named is None else named)
        return self.call(
            "update_weights_from_tensor", {"serialized_named_tensors": [text] * self.config.tp_size, **fields}
        )

    def named(self, name: str) -> list[dict[str, Any]]:
        return [fact.data for fact in self.facts if fact.name == name]

    def expected(self, seed: int, n: int = 8, prompt: Sequence[int] = PROMPT) -> list[int]:
        """Tokens of a fresh engine with the weights of `seed`."""
        return Driver(self.config.profile, seed=seed, tp_size=self.config.tp_size).generate(n, prompt)

    def _absorb(self, effects: list[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Reply):
                elapsed = self.now - self._started[effect.id]
                self._replies[effect.id] = Outcome(
                    ending="reply", status=effect.status, body=effect.body, value=effect.value, elapsed_s=elapsed
                )
            elif isinstance(effect, Broken):
                self._replies[effect.id] = Outcome(ending="dropped", error=effect.error.type)
            elif isinstance(effect, Token):
                self._chunks[effect.id].append(effect.chunk)
            elif isinstance(effect, Observed):
                self.facts.append(effect)
            elif isinstance(effect, Die):
                self.died, self.died_at = effect, self.now
            elif isinstance(effect, OpenPayload | Join | Recv | ReadDisk):
                self._perform(effect)
            else:
                assert isinstance(effect, Block) or effect is not None

    def _perform(self, effect: OpenPayload | Join | Recv | ReadDisk) -> None:
        if type(effect).__name__ in self.hang:
            self.hung.append(effect)
            return
        value: Any = None
        if isinstance(effect, OpenPayload):
            value = self._payloads.get(
                effect.data, Raised("_pickle.UnpicklingError", "Memo value not found at index 101")
            )
        elif isinstance(effect, Join):
            value = self.join_error
        elif isinstance(effect, Recv):
            value = self.broadcast
        else:
            value = self.disk.get(effect.path, Raised("FileNotFoundError", effect.path))
        end = Done(effect.id, error=value) if isinstance(value, Raised) else Done(effect.id, value)
        self._absorb(self.core.step(end, self.now))
