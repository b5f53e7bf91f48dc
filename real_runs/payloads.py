"""Payloads that a real SGLang on this machine opens: torch CPU tensors in shared memory, pickled under SGLang's names.

The sharing strategy is `file_system`: the default, `file_descriptor`, needs both processes to share a secret and kills
a server that does not. A payload dies with its producer, so `TorchPayloads` keeps the tensors until `release()`.
torch is imported on first use; SGLang is never imported.
"""

from __future__ import annotations

import base64
import contextlib
import copyreg
import io
import pickle
import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from real_runs.shared_memory import SHM

_FILE = re.compile(rb"torch_\d+_\d+_\d+")
BUCKET_MODULE = "sglang.srt.weight_sync.tensor_bucket"


class BucketMetadata:
    """Stands for SGLang's FlattenedTensorMetadata (weight_sync/tensor_bucket.py:9@0.5.23); all counts are in bytes."""

    def __init__(self, name: str, shape: Any, dtype: Any, start_idx: int, end_idx: int) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype
        self.start_idx, self.end_idx, self.numel = start_idx, end_idx, end_idx - start_idx


class _NamingPickler(pickle._Pickler):
    """A pickler that writes our metadata class under SGLang's name without importing SGLang."""

    _NAMES: ClassVar[dict[Any, tuple[str, str]]] = {BucketMetadata: (BUCKET_MODULE, "FlattenedTensorMetadata")}

    def save_global(self, obj: Any, name: str | None = None) -> None:
        target = self._NAMES.get(obj) if isinstance(obj, type) else None
        if target is None:
            super().save_global(obj, name)  # type: ignore[misc]
            return
        self.save(target[0])  # type: ignore[attr-defined]
        self.save(target[1])  # type: ignore[attr-defined]
        self.write(pickle.STACK_GLOBAL)  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]

    dispatch: ClassVar[Any] = {**pickle._Pickler.dispatch, type: save_global}  # type: ignore


class TorchPayloads:
    """Makes payloads and keeps their shared memory alive."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._files: set[str] = set()

    def one(self, named: Mapping[str, np.ndarray], load_format: str | None = "flattened_bucket") -> str:
        """One rank's payload, base64. ValueError for an empty bucket.

        `load_format` None and "direct" give a list of (name, tensor), "flattened_bucket" a bucket.
        """
        torch = _torch()
        tensors = {name: to_torch(torch, array) for name, array in named.items()}
        shaped = _bucket(torch, tensors) if load_format == "flattened_bucket" else list(tensors.items())
        self._kept.append(tensors if isinstance(shaped, list) else shaped)
        data = _pickle(shaped)
        self._files.update(name.decode() for name in _FILE.findall(data))
        return base64.b64encode(data).decode()

    def many(
        self, named: Sequence[Mapping[str, np.ndarray]], load_format: str | None = "flattened_bucket"
    ) -> list[str]:
        """One payload per entry."""
        return [self.one(entry, load_format) for entry in named]

    def release(self) -> None:
        """Free the shared memory of every payload made so far: one that was not opened yet can no longer be."""
        self._kept.clear()
        for name in self._files:  # torch leaves the file of a payload that nobody opened
            with contextlib.suppress(FileNotFoundError):
                (SHM / name).unlink()
        self._files.clear()


def to_torch(torch: Any, array: np.ndarray) -> Any:
    """The same values and dtype as a torch tensor of its own."""
    array = np.ascontiguousarray(array)
    name = array.dtype.name
    if array.dtype.kind in "fiub" and not name.startswith(("bfloat", "float8")):
        return torch.from_numpy(array.copy()).reshape(array.shape)
    raw = torch.from_numpy(np.frombuffer(array.tobytes(), dtype=np.uint8).copy())
    return raw.view(getattr(torch, name)).reshape(array.shape)


def _bucket(torch: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
    if not tensors:
        raise ValueError("Cannot create empty tensor bucket")
    parts, metadata, start = [], [], 0
    for name, tensor in tensors.items():
        part = tensor.reshape(-1).view(torch.uint8)
        metadata.append(BucketMetadata(name, tensor.shape, tensor.dtype, start, start + part.numel()))
        parts.append(part)
        start += part.numel()
    return {"flattened_tensor": torch.cat(parts), "metadata": metadata}


def _pickle(value: Any) -> bytes:
    from multiprocessing.reduction import ForkingPickler

    buffer = io.BytesIO()
    pickler: Any = _NamingPickler(buffer, protocol=4)
    pickler.dispatch_table = ChainMap(ForkingPickler._extra_reducers, copyreg.dispatch_table)  # type: ignore[attr-defined]
    pickler.dump(value)
    return buffer.getvalue()


def _torch() -> Any:
    import torch
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    return torch
