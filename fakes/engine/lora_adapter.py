"""One adapter: its PEFT configuration, its tensors as SGLang normalises them, and what a TP rank takes of them.

Loading looks at names and at what has to be joined; shapes and targets are met when a batch first uses the adapter and
its weights are copied into the device's pool. So an adapter of another shape is loaded with a 200 and kills the engine
at its first request (lora/lora.py:148, lora/mem_pool.py:891@0.5.23, the same since 0.5.12.post1 as far as it goes
here).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from fakes.engine import lora_messages as lm
from fakes.engine.crash import Crash, crash
from fakes.engine.layout import Param
from fakes.engine.weights import RankWeights

MODULES = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
"""The modules of a Llama or Qwen that adapters change here; SGLang also has embed_tokens and lm_head."""

STACKED = {"qkv_proj": 3, "gate_up_proj": 2}
"""How many A matrices lie on each other (lora/utils.py get_stacked_multiply@0.5.23)."""

_NORMAL = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
    **dict.fromkeys(("vocab_emb", "embeddings", "word_embeddings"), "embed_tokens"),
    **dict.fromkeys(("output", "unembed_tokens"), "lm_head"),
}
LAYER = re.compile(r"layers\.(\d+)\.")


class Refused(Exception):
    """An exception that SGLang catches while it loads: a 400 with this text."""


def normalised(target_modules: Any) -> set[str]:
    """The device's modules that a PEFT list of names means; {"all"} for the shorthands
    (lora/utils.py:157@0.5.23). Refused for another text, TypeError and AttributeError as Python says them."""
    if isinstance(target_modules, str):
        if target_modules not in ("all", "all-linear"):
            raise Refused(lm.BAD_SHORTHAND.text)
        return {"all"}
    names = (name.split(".")[-1] for name in target_modules)
    return {_NORMAL.get(name, name) for name in names}


@dataclass(frozen=True)
class AdapterConfig:
    """adapter_config.json as far as SGLang reads it. `added_tokens`: those beyond the base vocabulary."""

    target_modules: Any
    r: Any
    lora_alpha: Any
    use_dora: Any
    peft_type: Any
    added_tokens: int

    @classmethod
    def read(cls, config: Mapping[str, Any], added: Mapping[str, Any] | None, vocab_size: int) -> AdapterConfig:
        """lora/lora_config.py:24@0.5.23. KeyError for a key that is missing; `peft_type` is asked for last."""
        modules, r, alpha = config["target_modules"], config["r"], config["lora_alpha"]
        count = sum(1 for token in (added or {}).values() if token >= vocab_size)
        return cls(modules, r, alpha, config.get("use_dora", False), config.get("peft_type"), count)


Slice = tuple[int, int, np.ndarray, np.ndarray]
"""Output columns [start, end) of a rank's module, A^T [in, r] and B^T [r, end - start], float64."""


@dataclass
class Sharded:
    """What one rank computes with: by device module name ("model.layers.0.mlp.down_proj") its slices, and alpha / r."""

    scaling: float
    slices: dict[str, list[Slice]] = field(default_factory=dict)


class Adapter:
    """The tensors of one adapter, full, by layer, names as SGLang normalises them.

    tensors: PEFT names to arrays [r, in] and [out, r]. `Refused`, KeyError and the like are what SGLang catches.
    """

    def __init__(self, config: AdapterConfig, tensors: Mapping[str, np.ndarray], layers: int) -> None:
        if str(config.peft_type if config.peft_type is not None else _missing("peft_type")).lower() != "lora":
            raise Refused("")  # a bare assert (lora/lora.py:67@0.5.23)
        self.config = config
        self.scaling = config.lora_alpha / config.r
        self.layers: list[dict[str, np.ndarray]] = [{} for _ in range(layers)]
        declared = normalised(config.target_modules)
        for name, tensor in tensors.items():
            self._take(name, tensor, declared)
        for weights in self.layers:
            _join_qkv(weights)
            _join_gate_up(weights)
        self.digest = self._digest()

    def _take(self, name: str, tensor: np.ndarray, declared: set[str]) -> None:
        found = LAYER.search(name)
        if found is not None:
            index = int(found[1])
            if index >= len(self.layers):
                raise Refused(f"index {index} is out of range")
            self.layers[index][name] = np.array(tensor)  # .cpu(): the producer's memory is free again
        elif "embed_tokens" in name or "lm_head" in name or "unembed_tokens" in name:
            module = "embed_tokens" if "embed_tokens" in name and "unembed" not in name else "lm_head"
            if declared & {"all", module}:
                raise Refused(f"the fake has no LoRA of {module}")  # a bound of its own

    def _digest(self) -> str:
        """16 hex digits of everything that the adapter computes with."""
        found = hashlib.sha256(repr(self.scaling).encode())
        for index, weights in enumerate(self.layers):
            for name in sorted(weights):
                found.update(f"{index}/{name}/{weights[name].dtype}{weights[name].shape}".encode())
                found.update(np.ascontiguousarray(weights[name]).view(np.uint8).data)
        return found.hexdigest()[:16]

    def shard(self, rank: RankWeights, modules: frozenset[str]) -> Sharded:
        """What `rank` copies into its pool. A crash for a name outside `modules` and for a shape that does not fit."""
        out = Sharded(self.scaling)
        for index, weights in enumerate(self.layers):
            found: dict[str, dict[str, np.ndarray]] = {module: {} for module in modules}
            for name, tensor in weights.items():
                found[_target(name, modules, rank.tp_rank)]["A" if "lora_A" in name else "B"] = tensor
            for module in MODULES:
                if module in found:
                    self._place(out, index, module, found[module], rank)
        return out

    def _place(self, out: Sharded, layer: int, module: str, pair: dict[str, np.ndarray], rank: RankWeights) -> None:
        parent = "self_attn" if module in ("qkv_proj", "o_proj") else "mlp"
        name = f"model.layers.{layer}.{parent}.{module}"
        param = rank.layout[name + ".weight"]
        a, b, count, r = pair.get("A"), pair.get("B"), STACKED.get(module, 1), self.config.r
        if a is not None:  # without an A nothing is cut
            a, b = _cut(a, b, param)
        self._check(a, (r * count, param.shape[1]), rank.tp_rank)
        self._check(b, (param.shape[0], r), rank.tp_rank)
        if a is None or b is None:
            return  # zeros in the pool
        wide = [array.astype(rank.dtype).astype(np.float64) for array in (a, b)]
        starts = [0, *(part.offset + part.size for part in param.parts.values())] if param.parts else [0, len(b)]
        out.slices[name] = [
            (start, end, wide[0][i * r : (i + 1) * r].T, wide[1][start:end].T)
            for i, (start, end) in enumerate(pairwise(starts))
        ]

    @staticmethod
    def _check(array: np.ndarray | None, shape: tuple[int, ...], rank: int) -> None:
        if array is not None and array.shape != shape:
            raise crash(lm.BUFFER_SHAPE, rank, buffer=list(shape), weight=list(array.shape))


def _missing(key: str) -> Any:
    raise KeyError(key)


def _cut(a: np.ndarray, b: np.ndarray | None, param: Param) -> tuple[np.ndarray, np.ndarray | None]:
    """A by input columns of a row parallel module, else B by output rows (lora/layers.py:644,757,890@0.5.23)."""
    if param.kind == "row":
        return a[:, param.source : param.source + param.shape[1]], b
    if b is None:
        raise Crash("TypeError", "'NoneType' object is not subscriptable")
    rows, offset = [], 0
    for part in param.parts.values():
        rows.append(b[offset + part.source : offset + part.source + part.size])
        offset += part.full
    return a, np.concatenate(rows)


def _target(name: str, modules: frozenset[str], rank: int) -> str:
    """The longest module whose name is in `name` (lora/utils.py:225@0.5.23)."""
    fits = [module for module in sorted(modules) if module in name]
    if not fits:  # SGLang prints a set, in no order
        known = ", ".join(repr(module) for module in sorted(modules))
        raise crash(lm.NO_TARGET, rank, name=name, modules=f"{{{known}}}")
    return max(fits, key=len)


def _joined(*parts: np.ndarray) -> np.ndarray:
    for number, part in enumerate(parts):
        if part.shape[1:] != parts[0].shape[1:]:
            raise Refused(lm.CAT_SIZES(want=parts[0].shape[-1], got=part.shape[-1], number=number))
    return np.concatenate(parts)


def _join_qkv(weights: dict[str, np.ndarray]) -> None:
    """q, k and v become one, k as zeros where no name speaks of it (lora/lora.py:264@0.5.23)."""
    has_k = any("k_proj" in name for name in weights)
    for name in list(weights):
        if "q_proj" in name:
            k, v, qkv = (name.replace("q_proj", other) for other in ("k_proj", "v_proj", "qkv_proj"))
            weights[qkv] = _joined(weights[name], weights[k] if has_k else np.zeros_like(weights[v]), weights[v])
            for gone in (name, k, v) if has_k else (name, v):
                weights.pop(gone)
        elif "qkv_proj" in name and "lora_A" in name:
            weights[name] = np.tile(weights[name], (3, 1))


def _join_gate_up(weights: dict[str, np.ndarray]) -> None:
    """gate and up become one, up as zeros where there is none (lora/lora.py:437@0.5.23)."""
    for name in list(weights):
        if "gate_proj" in name:
            up = name.replace("gate_proj", "up_proj")
            if up not in weights or weights[up].size == 0:
                weights[up] = np.zeros_like(weights[name])
            weights[name.replace("gate_proj", "gate_up_proj")] = _joined(weights.pop(name), weights.pop(up))
        elif "gate_up_proj" in name and "lora_A" in name:
            weights[name] = np.tile(weights[name], (2, 1))
