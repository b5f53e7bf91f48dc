"""LoRA adapters of scenarios: their tensors, and what a clean engine answers under them.

The truth is that of the base weights with alpha / r B A added to them, in float32: no code that an engine runs its
adapters with has a part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fakes.outcome import Outcome
from fakes.trace import Origin
from harness.bench import CANARY_TOKENS, Bench, generation
from harness.lanes.base import EngineHandle, Expected
from harness.lanes.info import info_of

RANK, ALPHA = 4, 8
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LAUNCH: Mapping[str, Any] = {"enable_lora": True, "max_lora_rank": 8, "lora_target_modules": TARGETS}
"""Launch options of an engine that takes them."""

LOAD, UNLOAD = "load_lora_adapter_from_tensors", "unload_lora_adapter"
PREFIX = "base_model.model."
"""How PEFT begins every name."""

Named = dict[str, np.ndarray]


def config(**changes: Any) -> dict[str, Any]:
    """adapter_config.json of the adapters here."""
    usual = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": list(TARGETS), "bias": "none"}
    return {**usual, **changes}


def tensors(weights: Mapping[str, np.ndarray], seed: int, rank: int = RANK) -> Named:
    """An adapter of all projections: [rank, in] and [out, rank] in float32, the same for the same seed."""
    rng = np.random.default_rng([seed, 0x10A])
    out: Named = {}
    for name in weights:
        if not name.endswith("_proj.weight"):
            continue
        rows, columns = weights[name].shape
        stem = PREFIX + name.removesuffix(".weight")
        out[stem + ".lora_A.weight"] = rng.normal(0, 0.2, (rank, columns)).astype(np.float32)
        out[stem + ".lora_B.weight"] = rng.normal(0, 0.2, (rows, rank)).astype(np.float32)
    return out


def engine(bench: Bench, **changes: Any) -> EngineHandle:
    """An engine that takes adapters: in float32, as the truth is; on a GPU kernels want bfloat16."""
    dtype = "bfloat16" if info_of(bench.lane).kind == "sglang" else "float32"
    return bench.engine(dtype=dtype, **{**LAUNCH, **changes})


def load(bench: Bench, e: EngineHandle, name: str, seed: int, *, named: Named | None = None, **changes: Any) -> Outcome:
    """Load the adapter of a seed, or these tensors, under a name. `changes` are of its configuration."""
    bench.note("adapter", e, lora_name=name, adapter=seed)
    if named is None:
        named = tensors(bench.weights(0, e), seed)
    return e.call(LOAD, body(bench, e, name, named, config(**changes)))


def body(bench: Bench, e: EngineHandle, name: str, named: Named, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The request: one payload for each rank, or in 0.5.12 one for all of them."""
    payloads = bench.payloads(e, named)
    return {
        "lora_name": name,
        "config_dict": dict(settings),
        "load_format": "flattened_bucket",
        **sent(bench.version, payloads),
    }


def sent(version: str, payloads: list[str]) -> dict[str, Any]:
    """The payloads of a load as this version takes them (managers/io_struct.py:1895@0.5.12.post1, 2145@0.5.17)."""
    if version == "0.5.12.post1":
        return {"serialized_tensors": payloads[0]}
    return {"serialized_named_tensors": payloads}


def ask(bench: Bench, e: EngineHandle, label: str, name: str = "", *, origin: Origin = "traffic") -> Outcome:
    """The canary prompt of `label` under an adapter, or without one."""
    more = {"lora_path": name} if name else {}
    return e.call("generate", generation(bench.prompt(label), CANARY_TOKENS, **more), origin=origin)


def know(
    bench: Bench, e: EngineHandle, *labels: str, base: int = 0, adapters: tuple[int | None, ...] = (None, 1, 2)
) -> None:
    """Record what the base weights of a seed answer to the prompts of `labels` with each of these adapters."""
    bench.note("base", e, seed=e.spec.seed)
    for label in labels:
        for adapter in adapters:
            found = answer(bench, e, base, adapter, bench.prompt(label))
            told = {"tokens": list(found.tokens), "logprobs": list(found.logprobs or ())}
            bench.note("adapter_truth", e, base=base, adapter=adapter, prompt=bench.prompt(label), **told)


def answer(bench: Bench, e: EngineHandle, base: int, adapter: int | None, prompt: list[int]) -> Expected:
    """What a clean engine gives."""
    return _answer(e.spec.shape, e.spec.tied, base, adapter, tuple(prompt), CANARY_TOKENS)


@lru_cache(maxsize=64)
def _merged(shape: str, tied: bool, base: int, adapter: int | None) -> Any:
    from fakes.engine.model import Model
    from fakes.engine.weights import RankWeights
    from harness.lanes.fake import model_config, tiny_weights

    weights: Named = dict(tiny_weights(shape, tied, "float32", base))
    if adapter is not None:
        given = tensors(weights, adapter)
        for name in given:
            if name.endswith(".lora_A.weight"):
                stem = name.removesuffix(".lora_A.weight")
                delta = given[stem + ".lora_B.weight"] @ given[name]
                full = stem.removeprefix(PREFIX) + ".weight"
                weights[full] = (weights[full] + ALPHA / RANK * delta).astype(np.float32)
    held = model_config(shape, tied, "float32")
    rank = RankWeights(held, 0, 1, "float32")
    rank.load(weights.items())
    return Model(held, [rank])


@lru_cache(maxsize=1024)
def _answer(shape: str, tied: bool, base: int, adapter: int | None, prompt: tuple[int, ...], n: int) -> Expected:
    from harness.lanes.fake import greedy

    return greedy(_merged(shape, tied, base, adapter), prompt, n)
