"""Tensors that a caller hands to Engine.update_weights_from_tensor, as per-rank payloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fakes.world.world import World


def serialise_named(world: World, named: Iterable[tuple[str, Any]], tp_size: int) -> list[str]:
    """One payload of all tensors per rank, as Engine does by itself (entrypoints/engine.py:1743@0.5.23).

    `named`: (HF name, numpy array or torch tensor). The memory is simulated GPU memory of the world's export registry,
    which gets one when it has none; it is not recorded, since Engine and not the trainer owns it.
    """
    from fakes.trainer.registry import ExportRegistry
    from fakes.trainer.wire import export_list

    if world.resolver is None:
        world.resolver = ExportRegistry()
    arrays = [(name, as_array(tensor)) for name, tensor in named]
    return [export_list(world.resolver, rank, arrays, recorded=False).payload for rank in range(tp_size)]


def serialise_adapter(world: World, named: Mapping[str, Any], tp_size: int) -> list[str]:
    """One payload of an adapter's tensors per rank, a dict of them (entrypoints/engine.py:1743@0.5.23)."""
    from fakes.trainer.registry import ExportRegistry
    from fakes.trainer.wire import export_list

    if world.resolver is None:
        world.resolver = ExportRegistry()
    arrays = [(name, as_array(tensor)) for name, tensor in named.items()]
    return [export_list(world.resolver, r, arrays, recorded=False, as_dict=True).payload for r in range(tp_size)]


def as_array(tensor: Any) -> np.ndarray:
    """A numpy view of a torch tensor (bfloat16 and float8 as ml_dtypes), or the array itself."""
    if isinstance(tensor, np.ndarray):
        return tensor
    import torch

    from fakes.tiny import NUMPY_DTYPES

    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    dtype = NUMPY_DTYPES[str(tensor.dtype).removeprefix("torch.")]
    array: np.ndarray = flat.numpy().view(dtype).reshape(tuple(tensor.shape))
    return array
