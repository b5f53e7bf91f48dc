"""The engines' half of a bench: engines, pushes of a probe, canaries, traffic, notes."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fakes.outcome import Outcome
from harness.gate import FaultGate
from harness.lanes.base import EngineHandle, EngineSpec, Lane, Pending
from harness.words import cut

if TYPE_CHECKING:
    import numpy as np

VOCABULARY = 512  # of the tiny model; the ids below 8 are left to special tokens
CANARY_LENGTH = 8
CANARY_TOKENS = 8
_SPEC_FIELDS = frozenset(f.name for f in dataclasses.fields(EngineSpec)) - {"options", "version"}


class EngineBench:
    """What needs no client; see `harness.bench.Bench`."""

    def __init__(self, lane: Lane, gate: FaultGate, spec: EngineSpec, *, seed: int = 0) -> None:
        self.lane = lane
        self.gate = gate
        self.spec = spec
        self.seed = seed
        self.rng = random.Random(seed)
        self.engines: list[EngineHandle] = []
        self._canaries = 0

    # -- engines ------------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """The engine version that is judged: "0.5.23", "miles"."""
        return self.spec.version

    @property
    def tp(self) -> int:
        """Ranks of each engine, unless `engine(tp=...)` says otherwise."""
        return self.spec.tp

    @property
    def e0(self) -> EngineHandle:
        """The first engine, started when first asked for."""
        return self.engines[0] if self.engines else self.engine()

    def engine(self, name: str = "", **overrides: Any) -> EngineHandle:
        """Start one more engine, e0, e1, ... `overrides` are fields of EngineSpec or launch options of SGLang."""
        fields = {k: v for k, v in overrides.items() if k in _SPEC_FIELDS}
        options = {**dict(self.spec.options), **{k: v for k, v in overrides.items() if k not in _SPEC_FIELDS}}
        spec = dataclasses.replace(self.spec, **fields, options=tuple(sorted(options.items())))
        handle = self.lane.engine(spec, name or f"e{len(self.engines)}")
        self.engines.append(handle)
        self.note(
            "engine", handle, version=spec.version, tp=spec.tp, dtype=spec.dtype, shape=spec.shape, seed=spec.seed
        )
        return handle

    def fleet(self, n: int, **overrides: Any) -> list[EngineHandle]:
        """At least `n` engines, alike."""
        while len(self.engines) < n:
            self.engine(**overrides)
        return self.engines[:n]

    def sleep(self, seconds: float) -> None:
        """Let the lane's clock advance while engines run."""
        self.lane.sleep(seconds)

    @property
    def now(self) -> float:
        """Seconds of the lane's clock."""
        return self.lane.now()

    # -- pushing weights as a probe, for engine-side scenarios ---------------------------------------------------

    def weights(self, seed: int, engine: EngineHandle | None = None) -> dict[str, np.ndarray]:
        """HF-named weights of `seed` for the shape of `engine` (default: the bench's own)."""
        return self.lane.weights(engine.spec if engine else self.spec, seed)

    def payloads(
        self,
        engine: EngineHandle,
        weights: int | Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]],
        load_format: str | None = "flattened_bucket",
    ) -> list[str]:
        """One payload per rank of `engine`: of a seed, of one mapping for all ranks, or of one mapping per rank."""
        named = self.weights(weights, engine) if isinstance(weights, int) else weights
        per_rank = [named] * engine.spec.tp if isinstance(named, Mapping) else list(named)
        return engine.payloads(per_rank, load_format)

    @property
    def has_sessions(self) -> bool:
        """Whether this version has /begin_weight_update and /end_weight_update."""
        from harness.versions import version_matches

        return version_matches(self.version, ">=0.5.21 || miles")

    def load(
        self,
        engine: EngineHandle,
        seed: int,
        *,
        buckets: int = 1,
        load_format: str | None = "flattened_bucket",
        **fields: Any,
    ) -> Outcome:
        """A whole clean update by a probe (begin, buckets, end where the version has them), with flush_cache true.

        `fields` are added to every update request (weight_version, flush_cache, ...). Returns the first outcome that
        is not ok, else the last one.
        """
        outcome = engine.call("begin_weight_update", {}) if self.has_sessions else None
        if outcome is not None and not outcome.ok:
            return outcome
        items = list(self.weights(seed, engine).items())
        size = -(-len(items) // buckets)
        for at in range(0, len(items), size):
            payloads = self.payloads(engine, dict(items[at : at + size]), load_format)
            body = {"serialized_named_tensors": payloads, "load_format": load_format, "flush_cache": True, **fields}
            outcome = engine.call("update_weights_from_tensor", body)
            if not outcome.ok:
                return outcome
        if self.has_sessions:
            outcome = engine.call("end_weight_update", {})
        assert outcome is not None
        return outcome

    # -- canaries and traffic ------------------------------------------------------------------------------------

    def prompt(self, label: str, length: int = CANARY_LENGTH) -> list[int]:
        """The token ids that belong to `label`: fixed, and with no common prefix among labels."""
        out: list[int] = []
        counter = 0
        while len(out) < length:
            block = hashlib.sha256(f"{label}/{counter}".encode()).digest()
            out += [8 + int.from_bytes(block[i : i + 4], "big") % (VOCABULARY - 8) for i in range(0, 32, 4)]
            counter += 1
        return out[:length]

    def canary(
        self, engine: EngineHandle, label: str, *, seed: int | None, n: int = CANARY_TOKENS, timeout_s: float = 30.0
    ) -> Outcome:
        """Ask the prompt of `label` greedily and record what an engine with the weights of `seed` would answer.

        A label asked twice meets the prefix cache the second time; a new label never does. `seed` None: no expectation.
        """
        self._canaries += 1
        prompt = self.prompt(label)
        expected = None if seed is None else self.lane.expected(engine.spec, seed, prompt, n)
        about: dict[str, Any] = {"canary": self._canaries, "label": label}
        self.note(
            "expected",
            engine,
            **about,
            seed=seed,
            prompt=prompt,
            tokens=list(expected.tokens) if expected else None,
            logprobs=list(expected.logprobs) if expected and expected.logprobs is not None else None,
        )
        outcome = engine.call("generate", generation(prompt, n), origin="traffic", timeout_s=timeout_s)
        self.note("answer", engine, **about, **answer_of(outcome))
        return outcome

    def traffic(self, engine: EngineHandle, label: str, *, n: int = 32, after_s: float = 0.0, **body: Any) -> Pending:
        """Start a greedy generation of `n` tokens in the background, `after_s` seconds of the lane's clock from now.

        `body` are further fields of the request.
        """
        request = generation(self.prompt(label), n, **body)
        return engine.start("generate", request, origin="traffic", after_s=after_s)

    # -- records -------------------------------------------------------------------------------------------------

    def note(self, name: str, engine: EngineHandle | str = "", **data: Any) -> None:
        """Record something that the scenario knows: a fact of source harness."""
        self._fact("harness", name, engine, data)

    def barrier(self, label: str) -> None:
        """A point at which nothing of the system under test is under way; probes belong behind one."""
        self.note("barrier", label=label)

    def _fact(self, source: Any, name: str, engine: EngineHandle | str, data: Mapping[str, Any]) -> None:
        known = engine if isinstance(engine, str) else engine.name
        incarnation = 0 if isinstance(engine, str) else engine.incarnation
        self.gate.fact(name, data, engine=known, incarnation=incarnation, source=source)

    def record(self, name: str, rank: int = 0, data: Mapping[str, Any] | None = None) -> None:
        """What a trainer rank did; adapters get it as `Fleet.record`."""
        bounded = {key: cut(value) if isinstance(value, str) else value for key, value in (data or {}).items()}
        self.gate.trainer(name, rank, bounded)


def generation(prompt: Sequence[int], n: int, **more: Any) -> dict[str, Any]:
    """The body of a greedy /generate of exactly `n` tokens with logprobs."""
    sampling = {"temperature": 0, "max_new_tokens": n, "ignore_eos": True}
    return {"input_ids": list(prompt), "sampling_params": sampling, "return_logprob": True, **more}


def answer_of(outcome: Outcome) -> dict[str, Any]:
    """Tokens, logprobs and version of a /generate reply; None where it has none."""
    body = outcome.body if outcome.ok and isinstance(outcome.body, dict) else {}
    meta = body.get("meta_info") or {}
    pairs = meta.get("output_token_logprobs")
    return {
        "outcome": "ok" if outcome.ok else outcome.ending if outcome.ending != "reply" else "fail",
        "tokens": body.get("output_ids"),
        "logprobs": [pair[0] for pair in pairs] if pairs else None,
        "weight_version": meta.get("weight_version"),
    }
