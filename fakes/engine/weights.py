"""The parameters of one TP rank: HF names in, fused device names inside, content hashed for state ids and checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fakes.engine.crash import Crash
from fakes.engine.layout import Param, Shard, device_layout
from fakes.engine.loading import LoadError, default_load, load_into, not_a_name, route
from fakes.engine.quantised import (
    E4M3,
    MODULES,
    NO_LOADER,
    SCALE,
    SCHEMES,
    TENSOR_SCALE,
    UNLOADED,
    Kernels,
    Scheme,
    quantised_layout,
)
from fakes.tiny import NUMPY_DTYPES

if TYPE_CHECKING:
    from fakes.engine.protocol import EngineConfig

__all__ = ["LoadError", "RankWeights", "check_kernels", "get_weights_by_name", "loaded_ranks"]


SCALES = tuple(name + suffix for name in MODULES for suffix in (SCALE, TENSOR_SCALE))
STORED = (*MODULES, *SCALES)
"""What is not of the model's own dtype where it is quantised."""

MAX_ROUTES = 100_000
"""How many names a rank remembers the way of."""


class RankWeights:
    """One rank's device parameters.

    model_config: config.json of a Llama, Qwen2 or Qwen3. dtype: bfloat16 or float32. device: cpu or cuda (short
    inputs differ). `params` maps device names to arrays, in named_parameters() order; write through the methods only,
    so that hashes stay true.
    """

    def __init__(
        self,
        model_config: Mapping[str, Any],
        tp_rank: int,
        tp_size: int,
        dtype: str,
        *,
        device: str = "cpu",
        quantisation: str = "",
    ) -> None:
        self.config = dict(model_config)
        self.tp_rank = tp_rank
        self.tp_size = tp_size
        self.dtype = NUMPY_DTYPES[dtype]
        self.layout: dict[str, Param] = device_layout(model_config, tp_rank, tp_size)
        scheme = SCHEMES[quantisation] if quantisation else None
        if scheme is not None:
            self.layout = quantised_layout(self.layout, scheme)
        self.params: dict[str, np.ndarray] = {
            name: np.zeros(param.shape, dtype=self._stored(name, scheme)) for name, param in self.layout.items()
        }
        for name in self.params:
            if name.endswith(SCALES) and self.params[name].dtype == np.float32:
                self.params[name][...] = UNLOADED
        self._kernels = None if scheme is None else Kernels(scheme, self.params, self._touch, self.layout)
        self.version = 0
        self._cpu = device == "cpu"
        self._routes: dict[str, tuple[str, Shard | None] | None] = {}
        self._hashes: dict[str, str] = {}
        self._wide: dict[str, np.ndarray] = {}
        self._state: str | None = None

    @property
    def tied(self) -> bool:
        """Whether lm_head is embed_tokens."""
        return bool(self.config.get("tie_word_embeddings"))

    def load(self, named: Iterable[tuple[str, np.ndarray]]) -> list[str]:
        """model.load_weights: full HF tensors, sliced and cast here.

        Returns the names that were applied; unknown ones are skipped, missing ones go unnoticed.
        LoadError as SGLang raises it; what came before the bad tensor stays applied.
        """
        applied = []
        for name, tensor in named:
            target = self._route(name)
            if target is None:
                continue
            device_name, shard = target
            try:
                if self._kernels is None:
                    load_into(self.params[device_name], self.layout[device_name], tensor, shard, cpu=self._cpu)
                elif self._kernels.takes(device_name, tensor, stacked=shard is not None):
                    self._load_quantised(device_name, tensor, shard)
            finally:
                self._touch(device_name)
            applied.append(name)
        return applied

    def load_direct(self, named: Iterable[tuple[str, np.ndarray]]) -> list[str]:
        """load_format="direct": device names and local shards (model_runner_components/weight_updater.py:436 @0.5.23).

        LoadError KeyError for an unknown name, AssertionError for a shape that differs.
        """
        applied = []
        for name, tensor in named:
            if not isinstance(name, str):
                raise LoadError("KeyError", repr(name) if isinstance(name, int | float | None) else type(name).__name__)
            if name not in self.params:
                raise LoadError("KeyError", repr(name))
            default_load(self.params[name], tensor)
            self._touch(name)
            applied.append(name)
        return applied

    def finalise(self) -> None:
        """process_weights_after_loading of every module: nothing where nothing is quantised."""
        if self._kernels is not None:
            self._kernels.finalise()

    def across(self) -> tuple[int, int] | None:
        """The shape of the first matrix that a kernel would find transposed."""
        return None if self._kernels is None else self._kernels.across()

    def fill(self, name: str, value: np.ndarray | float) -> None:
        """Overwrite one device parameter."""
        self.params[name][...] = np.asarray(value).astype(self.params[name].dtype)
        self._touch(name)

    def zero(self) -> None:
        """What resumed weights hold on a GPU with the memory saver, as observed."""
        for name in self.params:
            self.fill(name, 0)

    def poison(self, seed: int) -> None:
        """Garbage that no update could have left, the same for the same seed."""
        rng = np.random.default_rng([seed, self.tp_rank, 0xBAD])
        for name, param in self.params.items():
            self.fill(name, rng.uniform(-1, 1, param.shape))

    def snapshot(self) -> dict[str, np.ndarray]:
        """A copy of every parameter."""
        return {name: param.copy() for name, param in self.params.items()}

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Put a snapshot back (the CPU backup)."""
        for name, value in snapshot.items():
            self.fill(name, value)

    def hash_of(self, name: str) -> str:
        """16 hex digits of one parameter's bytes: sha256 truncated, as tensor_hash does on CPU
        (managers/mm_utils.py:921 @0.5.23)."""
        found = self._hashes.get(name)
        if found is None:
            data = np.ascontiguousarray(self.params[name])
            found = self._hashes[name] = hashlib.sha256(data.view(np.uint8).data).hexdigest()[:16]
        return found

    def checksums(self) -> dict[str, str]:
        """Hash by name as weights_checker has it: of a weight with scales by block the dequantised numbers, and its
        scales nowhere (utils/weight_checker.py:347,362@0.5.23; observed 0.5.23 on a GPU)."""
        pairs = {} if self._kernels is None else self._kernels.pairs()
        scales = {scale for scale, _ in pairs.values()}
        out = {}
        for name in self.params:
            if name in pairs:
                data = np.ascontiguousarray(pairs[name][1]())
                out[name] = hashlib.sha256(data.view(np.uint8).data).hexdigest()[:16]
            elif name not in scales:
                out[name] = self.hash_of(name)
        return out

    def state_id(self) -> str:
        """16 hex digits of all content of this rank; recomputed only after a change."""
        if self._state is None:
            digest = hashlib.sha256()
            for name in self.params:
                digest.update(f"{name}={self.hash_of(name)};".encode())
            self._state = digest.hexdigest()[:16]
        return self._state

    def wide(self, name: str) -> np.ndarray:
        """One parameter as float64 (matrices transposed to [in, out]), kept until it changes: what the model
        multiplies with."""
        found = self._wide.get(name)
        if found is None:
            quantised = self._kernels is not None and name in self._kernels.modules
            stored = self._kernels.read(name) if quantised else self.params[name]  # type: ignore[union-attr]  # quantised: there are kernels
            value = stored.astype(np.float64)
            found = self._wide[name] = np.ascontiguousarray(value.T) if value.ndim == 2 else value
        return found

    def get_by_name(self, name: str, truncate_size: int = 100) -> list[Any] | None:
        """get_weights_by_name at tp 1; see the function of that name for several ranks."""
        return get_weights_by_name([self], name, truncate_size)

    def _route(self, name: str) -> tuple[str, Shard | None] | None:
        if not isinstance(name, str):
            raise not_a_name(name, self.config["model_type"])
        if name not in self._routes:
            found = route(
                name,
                kind=self.config["model_type"],
                layers=int(self.config["num_hidden_layers"]),
                params=self.params,
            )
            if len(self._routes) >= MAX_ROUTES:
                return found
            self._routes[name] = found
        return self._routes[name]

    def _load_quantised(self, device_name: str, tensor: np.ndarray, shard: Shard | None) -> None:
        if device_name not in self.layout:  # derived, and so without a loader (layers/utils/common.py:71@0.5.23)
            if shard is not None:
                raise LoadError("AttributeError", NO_LOADER)
            default_load(self.params[device_name], tensor)
            return
        one = tensor.reshape(1) if device_name.endswith(TENSOR_SCALE) and not tensor.ndim else tensor
        try:
            load_into(self.params[device_name], self.layout[device_name], one, shard, cpu=self._cpu)
        except LoadError as error:
            if error.type == "AssertionError" and device_name.endswith(STORED):
                raise LoadError("AssertionError", "") from None  # layers/parameter.py:223,336@0.5.23; observed
            raise

    def _stored(self, name: str, scheme: Scheme | None) -> np.dtype[Any]:
        if scheme is None or not name.endswith(STORED):
            return self.dtype
        if scheme.online:
            return self.dtype
        return E4M3 if name.endswith(MODULES) else scheme.scale

    def _touch(self, name: str) -> None:
        self.version += 1
        self._hashes.pop(name, None)
        self._wide.pop(name if self._kernels is None else self._kernels.weight_of(name), None)
        self._state = None


def check_kernels(ranks: Sequence[RankWeights], tokens: int) -> None:
    """Before a step of `tokens` tokens. Crash RuntimeError where a matrix lies across."""
    for rank in ranks:
        shape = rank.across()
        if shape is not None:
            rows, columns = shape
            text = f"mat1 and mat2 shapes cannot be multiplied ({tokens}x{columns} and {rows}x{columns})"
            raise Crash("RuntimeError", text, rank.tp_rank)


def state_id_of(ranks: Sequence[RankWeights]) -> str:
    """16 hex digits of all content of all ranks."""
    parts = [rank.state_id() for rank in ranks]
    return parts[0] if len(parts) == 1 else hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def loaded_ranks(
    config: EngineConfig, model_config: Mapping[str, Any], weights: Mapping[str, np.ndarray]
) -> list[RankWeights]:
    """The ranks of an engine as it is launched: a checkpoint loaded and finalised."""
    quantisation, device = config.quantisation, config.device
    ranks = [
        RankWeights(model_config, rank, config.tp_size, config.dtype, device=device, quantisation=quantisation)
        for rank in range(config.tp_size)
    ]
    for rank in ranks:
        rank.load(weights.items())
        rank.finalise()
    return ranks


_FUSED = (("qkv_proj", "q"), ("qkv_proj", "k"), ("qkv_proj", "v"), ("gate_up_proj", "gate"), ("gate_up_proj", "up"))


def get_weights_by_name(ranks: Sequence[RankWeights], name: str, truncate_size: int = 100) -> list[Any] | None:
    """The answer of rank 0: at most `truncate_size` rows as float32 lists; None (HTTP 400) when there is none.

    Llama only, Qwen2 and Qwen3 have no such method. q/k/v/gate/up are cut out of the fused parameter of rank 0,
    o_proj and down_proj are gathered from all ranks (models/llama.py:799 @0.5.23).
    """
    first = ranks[0]
    config, tp = first.config, len(ranks)
    if config["model_type"] != "llama":
        return None
    if name == "lm_head.weight" and first.tied:
        return _rows(first.params["model.embed_tokens.weight"], truncate_size)
    mapped, part = name, ""
    for device, hf in _FUSED:
        if f".{hf}_proj" in name:
            mapped, part = name.replace(f".{hf}_proj", f".{device}"), hf
            break
    if mapped not in first.params:
        return None
    weight = first.params[mapped]
    if part:
        heads, kv_heads = config["num_attention_heads"] // tp, config["num_key_value_heads"] // tp
        dim, inter = config["hidden_size"] // config["num_attention_heads"], config["intermediate_size"] // tp
        start, size = {
            "q": (0, heads * dim),
            "k": (heads * dim, kv_heads * dim),
            "v": ((heads + kv_heads) * dim, kv_heads * dim),
            "gate": (0, inter),
            "up": (inter, inter),
        }[part]
        if start + size > weight.shape[0]:
            return None
        weight = weight[start : start + size]
    if tp > 1 and ("o_proj" in name or "down_proj" in name):
        if weight.ndim < 2:
            return None
        weight = np.concatenate([rank.params[mapped] for rank in ranks], axis=1)
    return _rows(weight, truncate_size)


def _rows(array: np.ndarray, truncate_size: int) -> list[Any]:
    values: list[Any] = array.astype(np.float32).tolist()
    return values[:truncate_size]
