"""What a receiver makes of the bytes that were broadcast to it: tensors of the shapes and dtypes that it was told."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fakes.engine.protocol import Raised, Recv
from fakes.engine.tensors import BYTE, Dtype, PayloadError, Storage, Tensor, contiguous_stride, dtype_named

BUCKET = "flattened_bucket"


def sizes_of(effect: Recv) -> list[int]:
    """Bytes of each broadcast: one per tensor, or one for a whole bucket."""
    each = [_itemsize(dtype) * math.prod(shape) for dtype, shape in zip(effect.dtypes, effect.shapes, strict=True)]
    return [sum(each)] if effect.load_format == BUCKET else each


def named_of(effect: Recv, buffers: Sequence[np.ndarray]) -> list[tuple[str, np.ndarray]] | Raised:
    """(name, tensor) in the order of the request, or what reconstructing a bucket raised.

    A bucket has no padding: a tensor that does not begin at a multiple of its element size cannot be viewed
    (weight_sync/tensor_bucket.py:91@0.5.22).
    """
    try:
        if effect.load_format != BUCKET:
            return [
                (name, _whole(buffer, _dtype(dtype), shape))
                for name, dtype, shape, buffer in zip(effect.names, effect.dtypes, effect.shapes, buffers, strict=True)
            ]
        flat = Tensor(Storage(buffers[0]), BYTE, 0, (buffers[0].size,), (1,))
        out, start = [], 0
        for name, text, shape in zip(effect.names, effect.dtypes, effect.shapes, strict=True):
            dtype = _dtype(text)
            end = start + dtype.itemsize * math.prod(shape)
            out.append((name, flat[start:end].view(dtype).reshape(shape).array()))
            start = end
    except PayloadError as error:
        return Raised(error.type, error.message)
    except RuntimeError as error:
        return Raised("RuntimeError", str(error))
    return out


def _whole(buffer: np.ndarray, dtype: Dtype, shape: Sequence[int]) -> np.ndarray:
    return Tensor(Storage(buffer), dtype, 0, tuple(shape), contiguous_stride(tuple(shape))).array()


def _dtype(text: str) -> Dtype:
    found = dtype_named(text)
    if found is None:
        raise PayloadError("NotImplementedError", f"a tensor of torch.{text} cannot be loaded here")
    return found


def _itemsize(text: str) -> int:
    found = dtype_named(text)
    return found.itemsize if found is not None else 1
