"""The running batch: admission, prefill, decode, retraction, and what each token was made of.

A step is computed when it is launched, from the weights of that moment, and takes effect when it is done
(`Forward.done_at`); messages that arrive meanwhile wait, as they do in SGLang's event loop
(managers/scheduler.py:2028@0.5.23).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fakes.engine.cache import PrefixCache
from fakes.engine.engine_profile import EngineProfile
from fakes.engine.fatal_requests import check_prefill, check_token
from fakes.engine.memo import SHARED
from fakes.engine.model import Model, TokenKV, log_softmax
from fakes.engine.request import LogprobRow, Req, choose, row

if TYPE_CHECKING:
    from fakes.engine.lora_adapter import Sharded
    from fakes.engine.lora_manager import LoraManager

NEW_TOKEN_RATIO = 0.7
"""How much of a request's max_new_tokens admission reserves (schedule_conservativeness 1.0)."""


@dataclass(slots=True)
class Step:
    """One request's share of a forward pass: the token it will get, and what made it."""

    req: Req
    token: int
    row: LogprobRow | None
    kv_states: tuple[str, ...]


@dataclass(slots=True)
class Forward:
    """A forward pass under way, done at `done_at` (virtual seconds)."""

    phase: str
    steps: list[Step]
    done_at: float
    weights: str
    facts: dict[str, Any]


class Batch:
    """Waiting queue, running requests and the KV of all.

    `running` keeps requests that finished until the next step is put together, and `last` the batch of the last step:
    both count as "not idle", as in SGLang.
    """

    def __init__(
        self,
        model: Model,
        cache: PrefixCache,
        *,
        profile: EngineProfile,
        device: str,
        max_running: int,
        max_tokens: int,
        eos: frozenset[int],
        seed: int,
        model_key: str,
        observe: Callable[[Req, str], None],
        lora: LoraManager | None = None,
    ) -> None:
        self.model = model
        self._lora = lora
        self.cache = cache
        self.waiting: list[Req] = []
        self.running: list[Req] = []
        self.last: list[Req] = []
        self.last_is_prefill = False
        self._profile = profile
        self._device = device
        self._max_running = max_running
        self._max_tokens = max_tokens
        self._eos = eos
        self._seed = seed
        self._model_key = model_key
        self._observe = observe

    def is_idle(self, *, ignore_waiting: bool = False) -> bool:
        """SGLang's is_fully_idle (managers/scheduler.py:5337@0.5.23)."""
        return not self.running and not self.last and (ignore_waiting or not self.waiting)

    def live(self) -> list[Req]:
        """Running and waiting requests that are not over, without repetition."""
        found = {id(r): r for r in [*self.running, *self.last, *self.waiting] if r.finish is None}
        return list(found.values())

    def in_flight(self) -> list[Req]:
        """Requests of the running and the last batch."""
        return list({id(r): r for r in [*self.running, *self.last]}.values())

    def settle(self) -> None:
        """Merge the last prefill into the running batch and drop what finished."""
        if self.last_is_prefill:
            self.running += self.last
        self.running = [r for r in self.running if r.finish is None]
        self.last, self.last_is_prefill = [], False

    def launch(
        self, now: float, *, weights: str, prefill_s: float, decode_s: float, facts: dict[str, Any]
    ) -> Forward | None:
        """Put the next step together and compute it; None when there is nothing to do."""
        self.settle()
        admitted = self._admit()
        if admitted:
            for req in admitted:
                if self._lora is not None and req.lora_id is not None:
                    self._lora.use(req.lora_id)
            check_prefill(self._profile, self._device, admitted)
            steps = [self._prefill(req, weights) for req in admitted]
            return Forward("prefill", steps, now + prefill_s, weights, facts)
        if not self.running:
            return None
        self._make_room()
        steps = [self._decode(req, weights) for req in self.running]
        return Forward("decode", steps, now + decode_s, weights, facts)

    def complete(self, forward: Forward) -> list[Req]:
        """Append the tokens of a finished pass; returns its requests."""
        for step in forward.steps:
            req = step.req
            req.output.append(step.token)
            if step.row is not None:
                req.output_rows.append(step.row)
            req.update_finish(self._eos, stop_first=self._profile.stop_beats_length)
            check_token(req)
            if req.finish is not None:
                self._finish(req)
        done = [step.req for step in forward.steps]
        self.last, self.last_is_prefill = done, forward.phase == "prefill"
        return done

    def retract_all(self) -> list[Req]:
        """Take every running request's KV away and put it back into the queue (a retract pause)."""
        taken = [r for r in self.in_flight() if r.finish is None]
        self.running, self.last, self.last_is_prefill = [], [], False
        for req in taken:
            self._retract(req)
        return taken

    def _admit(self) -> list[Req]:
        used = sum(self._need(r) for r in self.running)
        taken: list[Req] = []
        adapters = {r.lora_id for r in self.running}
        for req in list(self.waiting):
            if len(self.running) + len(taken) >= self._max_running:
                break
            if self._lora is not None and req.lora_id not in adapters and not self._lora.fits({req.lora_id, *adapters}):
                continue  # the next may go before it (managers/scheduler.py:4209@0.5.23)
            need = self._need(req)
            if used + need > self._max_tokens and (self.running or taken):
                break
            used += need
            adapters.add(req.lora_id)
            self.waiting.remove(req)
            taken.append(req)
        return taken

    @staticmethod
    def _need(req: Req) -> float:
        left = max(req.sampling.max_new_tokens - len(req.output), 0)
        return len(req.prompt) + len(req.output) + left * NEW_TOKEN_RATIO

    def _make_room(self) -> None:
        """Retract the request with the fewest output tokens while the next decode would not fit."""
        while len(self.running) > 1 and sum(len(r.prompt) + len(r.output) for r in self.running) > self._max_tokens:
            victim = min(self.running, key=lambda r: (len(r.output), -len(r.prompt)))
            self.running.remove(victim)
            self._retract(victim)

    def _retract(self, req: Req) -> None:
        req.kv, req.states = None, []
        req.retractions += 1
        self.waiting.append(req)
        self._observe(req, "retracted")

    def _made_by(self, req: Req, weights: str) -> str:
        """The state id of what computes for this request: the weights, and its adapter."""
        if self._lora is None or req.lora_id is None:
            return weights
        text = f"{weights}+{self._lora.digest(req.lora_id)}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _prefill(self, req: Req, weights: str) -> Step:
        weights = self._made_by(req, weights)
        tokens = req.tokens
        req.counted_from = len(req.output)
        found, kv, states = self.cache.match(tokens[: req.prefix_limit()], req.extra_key)
        if not req.retractions:
            req.cached_tokens += found
        req.kv, req.states = TokenKV(np.asarray(kv)) if found else self.model.empty_kv(), list(states[:found])
        self._observe(req, "running")
        if req.logprobs is not None and req.logprobs.start >= 0:
            logits, new = self.model.forward(tokens[found:], req.kv, adapter=self._adapter(req))
            if not req.retractions:  # what a first prefill found stays (logprob_result_processor.py:252@0.5.23)
                self._prompt_rows(req, tokens, found, logits)
        else:
            logits, new = self._forward(req, tokens, found, weights)
        req.kv.append(new)
        req.states += [weights] * len(new)
        step = self._step(req, logits[-1])
        self._share(req, tokens, found)
        return step

    def _share(self, req: Req, tokens: list[int], found: int) -> None:
        """Put the prompt into the cache. Where the cache had a token already, its KV replaces what was just computed.

        That is SGLang's cache_unfinished_req: the request's own copy is freed (mem_cache/radix_cache.py@0.5.23; seen on
        the real one: after an update without a flush even the last prompt token decodes with the old KV).
        """
        assert req.kv is not None
        known = self.cache.insert(tokens, req.kv.array, req.states, req.extra_key)
        if known <= found:
            return
        count, kv, states = self.cache.match(tokens[:known], req.extra_key)
        own = req.kv.array.copy()
        own[:count] = kv
        req.kv, req.states = TokenKV(own), [*states, *req.states[count:]]

    def _decode(self, req: Req, weights: str) -> Step:
        assert req.kv is not None
        weights = self._made_by(req, weights)
        tokens = req.tokens
        logits, new = self._forward(req, tokens, len(tokens) - 1, weights)
        req.kv.append(new)
        req.states.append(weights)
        return self._step(req, logits[-1])

    def _forward(self, req: Req, tokens: list[int], start: int, weights: str) -> tuple[np.ndarray, np.ndarray]:
        """Logits [1, vocab] after all tokens, and the KV of those from `start`; remembered where all KV is clean."""
        assert req.kv is not None
        clean = req.states.count(weights) == len(req.states)
        key = (self._model_key, weights, tuple(tokens))
        kept = SHARED.get(key, len(tokens) - start) if clean else None
        if kept is not None:
            return kept[0][None], kept[1]
        logits, new = self.model.forward(tokens[start:], req.kv, last_only=True, adapter=self._adapter(req))
        if clean:
            SHARED.put(key, logits[-1], new)
        return logits, new

    def _adapter(self, req: Req) -> list[Sharded] | None:
        return None if self._lora is None or req.lora_id is None else self._lora.use(req.lora_id)

    def _step(self, req: Req, logits: np.ndarray) -> Step:
        token, logprobs = choose(req, logits, self._seed)
        return Step(req, token, logprobs, tuple(dict.fromkeys(req.states)))

    def _prompt_rows(self, req: Req, tokens: list[int], found: int, logits: np.ndarray) -> None:
        """Log-probabilities of the prompt from `start` on, wherever the cached prefix ends; the first one is null
        (managers/scheduler_components/logprob_result_processor.py:38,50@0.5.22)."""
        assert req.logprobs is not None
        logprobs, start = log_softmax(logits), req.logprobs.start
        rows = [LogprobRow(None, token, None, None) for token in req.prompt[start : start + 1]]
        for index in range(start + 1, len(req.prompt)):
            rows.append(row(req.logprobs, logprobs[index - found - 1], tokens[index]))
        req.input_rows = rows

    def _finish(self, req: Req) -> None:
        """Leave the KV in the cache: all tokens but the last, whose KV was never computed."""
        assert req.kv is not None
        kept = len(req.kv)
        self.cache.insert(req.tokens[:kept], req.kv.array, req.states, req.extra_key)
        req.kv = None
