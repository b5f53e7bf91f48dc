"""The policy that the trainer holds: every rank has a shard of every tensor, and export puts the full HF tensors
together.

Two layouts. fsdp: each tensor is cut along dimension 0 into equal chunks, the last ones shorter or empty, as torch's
FSDP2 does. megatron: column-parallel weights are cut along dimension 0, row-parallel ones along dimension 1, norms
are whole on every rank; vocabulary-parallel embedding and head along dimension 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

Layout = Literal["fsdp", "megatron"]

_ROW_PARALLEL = ("o_proj.weight", "down_proj.weight")
_COLUMN_PARALLEL = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head")


def cut_dim(name: str, shape: Sequence[int], ranks: int, layout: Layout) -> int | None:
    """The dimension that a tensor is cut along, or None when every rank holds all of it."""
    if ranks == 1 or not shape:
        return None
    if layout == "fsdp":
        return 0
    if name.endswith(_ROW_PARALLEL):
        return 1 if len(shape) > 1 and shape[1] % ranks == 0 else None
    if any(part in name for part in _COLUMN_PARALLEL):
        return 0 if shape[0] % ranks == 0 else None
    return None


def shard(name: str, array: np.ndarray, rank: int, ranks: int, layout: Layout = "fsdp") -> np.ndarray:
    """What `rank` holds of a tensor: a view."""
    dim = cut_dim(name, array.shape, ranks, layout)
    if dim is None:
        return array
    chunk = -(-array.shape[dim] // ranks)
    index = (slice(None),) * dim + (slice(rank * chunk, (rank + 1) * chunk),)
    return array[index]


def merge(name: str, parts: Sequence[np.ndarray], shape: Sequence[int], layout: Layout = "fsdp") -> np.ndarray:
    """The full tensor from all ranks' shards. ValueError when they do not make up `shape`."""
    dim = cut_dim(name, shape, len(parts), layout)
    full = parts[0] if dim is None else np.concatenate(parts, axis=dim)
    if full.shape != tuple(shape):
        raise ValueError(f"{name}: the shards make {full.shape}, not {tuple(shape)}")
    return full


class RankPolicy:
    """One rank's shards of one state. `state` maps HF names to full arrays; only this rank's part is kept."""

    def __init__(self, state: Mapping[str, np.ndarray], rank: int, ranks: int, layout: Layout = "fsdp") -> None:
        self.layout = layout
        self.shapes = {name: tuple(array.shape) for name, array in state.items()}
        self.shards = {name: shard(name, array, rank, ranks, layout) for name, array in state.items()}
