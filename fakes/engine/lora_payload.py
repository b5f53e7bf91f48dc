"""The tensors of load_lora_adapter_from_tensors: one pickle per rank (0.5.12: one for all), opened as any payload.

Unlike an update's it holds a dict of tensors, and every load_format but flattened_bucket means that dict
(managers/tp_worker.py:217@0.5.23, 0.5.12.post1).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fakes.engine.allowlist import AllowList
from fakes.engine.lora_adapter import LAYER
from fakes.engine.payload import Resolver, reconstruct, unpickle
from fakes.engine.tensors import PayloadError, Tensor

MAX_TENSORS = 100_000


def open_adapter(
    data: bytes, *, profile_allow: AllowList, rank: int, load_format: str | None, resolver: Resolver | None
) -> dict[str, np.ndarray] | str:
    """Names to arrays; or, where what was sent is no dict of tensors, what Python says when SGLang walks through it,
    which it catches. PayloadError is what it does not catch: the engine dies of it."""
    found = unpickle(data, profile_allow=profile_allow, rank=rank, resolver=resolver)
    if load_format == "flattened_bucket":
        try:
            return dict(reconstruct(found["flattened_tensor"], found["metadata"]))
        except PayloadError:
            raise
        except Exception as error:
            raise PayloadError(type(error).__name__, str(error)) from None
    if not isinstance(found, Mapping):
        return f"{type(found).__name__!r} object has no attribute 'items'"
    if len(found) > MAX_TENSORS:
        raise PayloadError("MemoryError", f"an adapter of more than {MAX_TENSORS} tensors")
    out = {}
    for name, tensor in found.items():
        if not isinstance(name, str):
            return f"argument of type {type(name).__name__!r} is not iterable"
        if isinstance(tensor, Tensor):
            out[name] = tensor.array()
        elif LAYER.search(name):  # of other names nobody looks at the value
            return f"{type(tensor).__name__!r} object has no attribute 'cpu'"
    return out
