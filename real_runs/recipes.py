"""Payloads written as data, so that a recorded history holds a line instead of megabytes.

In a step's body, `{"$payload": recipe}` stands for the value of `serialized_named_tensors`, and `{"$model": seed}` for
the path of a model folder. The same recipe gives the same tensors on the real lane and in the replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any, Protocol

import msgspec
import numpy as np

from fakes.tiny import NUMPY_DTYPES


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rank's payload. `raw` is the exact string instead of any tensors.

    Tensors: the weights of `seed`; `only` and `drop` are name patterns; `change` maps a name to (shape, fill) in place
    of, or besides, what is there; `oversize` (rows added at the end), `rename` and `cast` come after, in this order.
    `local` gives the rank's own on-device names and shards, as load_format "direct" wants them.
    """

    raw: str | None = None
    seed: int | None = None
    only: list[str] = []
    drop: list[str] = []
    change: dict[str, tuple[list[int], float]] = {}
    rename: dict[str, str] = {}
    cast: str | None = None
    oversize: dict[str, int] = {}
    local: bool = False


class Recipe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The list of `serialized_named_tensors`: `entries`, or `each` once per rank; `format` wraps the tensors."""

    each: Entry | None = None
    entries: list[Entry] = []
    format: str | None = None


class Model(Protocol):
    """What a recipe is made from."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Its config.json."""
        ...

    @property
    def tp(self) -> int:
        """Tensor-parallel ranks."""
        ...

    def weights(self, seed: int) -> Mapping[str, np.ndarray]:
        """HF names and full tensors."""
        ...


Wrap = Callable[[Mapping[str, np.ndarray], str | None], str]


def strings(recipe: Recipe, model: Model, wrap: Wrap) -> list[str]:
    """The payload strings: `wrap(named, format)` makes one from its tensors."""
    entries = recipe.entries if recipe.each is None else [recipe.each] * model.tp
    return [
        entry.raw if entry.raw is not None else wrap(tensors(entry, model, rank), recipe.format)
        for rank, entry in enumerate(entries)
    ]


def tensors(entry: Entry, model: Model, rank: int) -> dict[str, np.ndarray]:
    """The named tensors of one entry."""
    named: dict[str, np.ndarray] = {}
    if entry.seed is not None:
        whole = model.weights(entry.seed)
        named = local_shards(model.config, whole, rank % model.tp, model.tp) if entry.local else dict(whole)
    if entry.only:
        named = {name: array for name, array in named.items() if _matches(name, entry.only)}
    named = {name: array for name, array in named.items() if not _matches(name, entry.drop)}
    dtype = NUMPY_DTYPES[str(model.config["torch_dtype"])]
    for name, (shape, fill) in entry.change.items():
        named[name] = np.full(tuple(shape), fill, dtype=np.float32).astype(dtype)
    for name, rows in entry.oversize.items():
        extra = np.full((rows, *named[name].shape[1:]), 0.5, dtype=np.float32).astype(dtype)
        named[name] = np.concatenate([named[name], extra])
    named = {entry.rename.get(name, name): array for name, array in named.items()}
    if entry.cast is not None:
        named = {name: array.astype(NUMPY_DTYPES[entry.cast]) for name, array in named.items()}
    return named


def local_shards(
    config: Mapping[str, Any], whole: Mapping[str, np.ndarray], rank: int, tp: int
) -> dict[str, np.ndarray]:
    """On-device names and this rank's shards: q, k, v fused, gate and up too; row-parallel inputs split."""
    out: dict[str, np.ndarray] = {}
    for name, array in whole.items():
        if name.endswith((".k_proj.weight", ".v_proj.weight", ".k_proj.bias", ".v_proj.bias", ".up_proj.weight")):
            continue  # comes with the first of its group
        if ".q_proj." in name:
            parts = [_rows(whole[name.replace(".q_proj.", f".{part}_proj.")], rank, tp) for part in "qkv"]
            out[name.replace(".q_proj.", ".qkv_proj.")] = np.concatenate(parts)
        elif ".gate_proj." in name:
            parts = [_rows(whole[name.replace(".gate_proj.", f".{part}_proj.")], rank, tp) for part in ("gate", "up")]
            out[name.replace(".gate_proj.", ".gate_up_proj.")] = np.concatenate(parts)
        elif name.endswith((".o_proj.weight", ".down_proj.weight")):
            width = array.shape[1] // tp
            out[name] = array[:, rank * width : (rank + 1) * width]
        elif name in ("model.embed_tokens.weight", "lm_head.weight"):
            out[name] = _rows(array, rank, tp)
        else:
            out[name] = array
    return out


def _rows(array: np.ndarray, rank: int, tp: int) -> np.ndarray:
    rows = array.shape[0] // tp
    return array[rank * rows : (rank + 1) * rows]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def fill(body: Any, model: Model, wrap: Wrap, folder: Callable[[int], str]) -> Any:
    """`body` with every `$payload` and `$model` replaced; `folder(seed)` gives a model folder's path."""
    if isinstance(body, Mapping):
        if set(body) == {"$payload"}:
            return strings(msgspec.convert(body["$payload"], Recipe), model, wrap)
        if set(body) == {"$model"}:
            return folder(int(body["$model"]))
        return {key: fill(value, model, wrap, folder) for key, value in body.items()}
    if isinstance(body, list):
        return [fill(value, model, wrap, folder) for value in body]
    return body
