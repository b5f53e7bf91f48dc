"""Payloads over torch's own CPU shared memory, which a real SGLang on this machine opens; and their reader.

The sharing strategy is file_system: file_descriptor fails between unrelated processes and kills the server. torch is
imported on first use. A payload dies with its producer, and with `release()`.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from fakes.engine.tensors import PayloadError
from fakes.tiny import TORCH_NAMES
from fakes.trainer.pickling import Global, Object, Reduce, dumps
from fakes.trainer.wire import Named, digest_of, flatten

_SHM = Path("/dev/shm")
_HANDLE = re.compile(rb"/torch_\d+_\d+_\d+")
_REDUCTIONS = "torch.multiprocessing.reductions"
_METADATA = Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata")


class TorchExport:
    """One payload and the shared memory behind it. `payload` is base64 text."""

    def __init__(self, data: bytes, storages: list[Any], handles: list[bytes]) -> None:
        self.payload = base64.b64encode(data).decode()
        self.sha256 = digest_of(self.payload)
        self._storages = storages
        self._handles = handles

    def release(self) -> None:
        """Free the shared memory; what was not opened yet can no longer be. A second call does nothing.

        Making a payload counts as one reader, so memory that nobody opened has to be unlinked here.
        """
        self._storages.clear()
        handles, self._handles = self._handles, []
        for handle in handles:
            path = _SHM / handle.decode().lstrip("/")
            if path.exists() and not _is_mapped(path):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()


def export_bucket(named: Named) -> TorchExport:
    """load_format="flattened_bucket". ValueError for an empty bucket."""
    parts, metadata = flatten(named)
    tensor, storage, handle = _share(np.concatenate(parts), "uint8", (sum(part.size for part in parts),))
    described = [
        Object(
            _METADATA,
            {
                **meta,
                "shape": Reduce(Global("torch", "Size"), (meta["shape"],)),
                "dtype": Global("torch", meta["dtype"]),
            },
        )
        for meta in metadata
    ]
    return TorchExport(dumps({"flattened_tensor": tensor, "metadata": described}), [storage], [handle])


def export_list(named: Named) -> TorchExport:
    """load_format None or "direct": a list of (name, tensor)."""
    value, storages, handles = [], [], []
    for name, array in named:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        tensor, storage, handle = _share(data, TORCH_NAMES[array.dtype], array.shape)
        value.append((name, tensor))
        storages.append(storage)
        handles.append(handle)
    return TorchExport(dumps(value), storages, handles)


def _share(data: np.ndarray, dtype: str, shape: tuple[int, ...]) -> tuple[Reduce, Any, bytes]:
    """A tensor of `dtype` over a shared copy of `data`: what torch's reduce_tensor and reduce_storage write
    (torch/multiprocessing/reductions.py @2.13).
    """
    torch = _torch()
    storage = torch.UntypedStorage(data.size)
    torch.tensor([], dtype=torch.uint8).set_(storage).numpy()[...] = data
    manager, handle, size = storage._share_filename_cpu_()
    if (
        data.size
    ):  # the shared copy is another mapping: write again, torch keeps the old contents only on the first share
        torch.tensor([], dtype=torch.uint8).set_(storage).numpy()[...] = data
    storage._shared_incref()
    untyped = Reduce(
        Global(_REDUCTIONS, "rebuild_storage_filename"),
        (Global("torch.storage", "UntypedStorage"), bytes(manager), bytes(handle), int(size)),
    )
    typed = Reduce(Global(_REDUCTIONS, "rebuild_typed_storage"), (untyped, Global("torch", dtype)))
    stride, step = [], 1
    for dim in reversed(shape):
        stride.append(step)
        step *= dim
    metadata = (0, Reduce(Global("torch", "Size"), (tuple(shape),)), tuple(reversed(stride)), False)
    tensor = Reduce(Global(_REDUCTIONS, "rebuild_tensor"), (Global("torch", "Tensor"), typed, metadata))
    return tensor, storage, bytes(handle)


class TorchResolver:
    """`fakes.engine.payload.Resolver` for payloads that hold real torch CPU tensors."""

    def cuda(self, handle: Any, rank: int) -> np.ndarray:
        """There is no GPU here."""
        raise PayloadError("AssertionError", "Torch not compiled with CUDA enabled")

    def shared(self, manager: bytes, handle: bytes, size: int) -> np.ndarray:
        """Map a storage by name. RuntimeError `No such file or directory` when its producer is gone (observed on
        0.5.23)."""
        path = _SHM / handle.decode("ascii", "replace").lstrip("/")
        if not _HANDLE.fullmatch(handle) or not path.exists() or path.stat().st_size < size:
            raise PayloadError("RuntimeError", "No such file or directory")
        torch = _torch()
        try:
            storage = torch.UntypedStorage._new_shared_filename_cpu(manager, handle, size)
        except RuntimeError as error:
            raise PayloadError("RuntimeError", str(error)) from None
        storage._shared_decref()
        view: np.ndarray = torch.tensor([], dtype=torch.uint8).set_(storage).numpy()
        return view

    def torch_storage(self, data: bytes) -> tuple[np.ndarray, str | None]:
        """torch.load(weights_only=True) of one storage, and its dtype's name if it is typed."""
        torch = _torch()
        try:
            storage = torch.load(io.BytesIO(data), weights_only=True)
        except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
            kind = "_pickle.UnpicklingError" if isinstance(error, pickle.UnpicklingError) else type(error).__name__
            raise PayloadError(kind, str(error)) from None
        untyped = getattr(storage, "_untyped_storage", storage)
        if not isinstance(untyped, torch.UntypedStorage):
            raise PayloadError("_pickle.UnpicklingError", f"Expected a Torch storage, got {type(storage).__name__}")
        dtype = None if untyped is storage else str(storage.dtype).removeprefix("torch.")
        return torch.tensor([], dtype=torch.uint8).set_(untyped).numpy(), dtype


def leftovers(pid: int | None = None) -> list[str]:
    """Names of torch's shared memory of this process (or of `pid`) that still exist."""
    return sorted(path.name for path in _SHM.glob(f"torch_{pid or os.getpid()}_*"))


def _is_mapped(path: Path) -> bool:
    """Whether any process that we may look at still maps a file."""
    needle = str(path)
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if needle in maps.read_text(errors="replace"):
                return True
        except OSError:
            continue
    return False


def _torch() -> Any:
    import torch

    return torch
