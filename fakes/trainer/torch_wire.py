"""Payloads over torch's CPU shared memory (strategy file_system), and their reader.

`torch_share` makes storages that a real SGLang on this machine opens; `file_share` makes the same without torch, for
the fake
over HTTP. The strategy file_descriptor fails between unrelated processes and kills the server. A payload dies with
`release()`
and with its producer.
"""

from __future__ import annotations

import base64
import io
import pickle
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fakes.engine.tensors import PayloadError
from fakes.tiny import TORCH_NAMES
from fakes.trainer import shm
from fakes.trainer.pickling import Global, Reduce, dumps
from fakes.trainer.wire import Named, bucket_pickle, digest_of, flatten

_REDUCTIONS = "torch.multiprocessing.reductions"


class Shared(Protocol):
    """One storage in memory that another process opens."""

    def tensor(self, dtype: str, shape: tuple[int, ...]) -> Reduce:
        """What a pickle says of the contiguous tensor that fills the storage."""
        ...

    def close(self) -> None:
        """Free it."""
        ...


Share = Callable[[np.ndarray], Shared]


class TorchExport:
    """One payload and the shared memory behind it. `payload` is base64 text."""

    def __init__(self, data: bytes, storages: list[Shared]) -> None:
        self.payload = base64.b64encode(data).decode()
        self.sha256 = digest_of(self.payload)
        self._storages = storages

    def release(self) -> None:
        """Free the shared memory; what was not opened yet can no longer be. A second call does nothing."""
        storages, self._storages = self._storages, []
        for storage in storages:
            storage.close()


class _Named:
    """A storage of `size` bytes that is opened by name."""

    manager: bytes
    handle: bytes
    size: int

    def tensor(self, dtype: str, shape: tuple[int, ...]) -> Reduce:
        """What torch's reduce_tensor and reduce_storage write (torch/multiprocessing/reductions.py @2.13)."""
        untyped = Reduce(
            Global(_REDUCTIONS, "rebuild_storage_filename"),
            (Global("torch.storage", "UntypedStorage"), self.manager, self.handle, self.size),
        )
        typed = Reduce(Global(_REDUCTIONS, "rebuild_typed_storage"), (untyped, Global("torch", dtype)))
        metadata = (0, Reduce(Global("torch", "Size"), (tuple(shape),)), contiguous(shape), False)
        return Reduce(Global(_REDUCTIONS, "rebuild_tensor"), (Global("torch", "Tensor"), typed, metadata))


class _TorchStorage(_Named):
    """A storage made by torch; its manager process serves the receiver."""

    def __init__(self, data: np.ndarray) -> None:
        torch = _torch()
        self.size = data.size
        self._storage: Any = torch.UntypedStorage(data.size)
        torch.tensor([], dtype=torch.uint8).set_(self._storage).numpy()[...] = data
        manager, handle, _ = self._storage._share_filename_cpu_()
        self._storage._shared_incref()  # one reference for the payload, as reduce_storage has it
        self.manager, self.handle = bytes(manager), bytes(handle)

    def close(self) -> None:
        """Free it. A payload that nobody opened still holds a reference, so the file is unlinked here, unless a
        reader has it."""
        self._storage = None
        name = self.handle[1:].decode()
        if (shm.FOLDER / name).exists() and not shm.is_mapped(name):
            shm.unlink(name)


class _FileStorage(_Named):
    """A storage made without torch: no manager."""

    manager = b""

    def __init__(self, data: np.ndarray) -> None:
        self.size = data.size
        self._file = shm.SharedFile(data)
        self.handle = self._file.handle

    def close(self) -> None:
        """Free it."""
        self._file.close()


def torch_share(data: np.ndarray) -> Shared:
    """Bytes (uint8) into a storage of torch's."""
    return _TorchStorage(data)


def file_share(data: np.ndarray) -> Shared:
    """Bytes (uint8) into a storage that only the fake opens."""
    return _FileStorage(data)


def export_bucket(named: Named, share: Share = torch_share) -> TorchExport:
    """load_format="flattened_bucket". ValueError for an empty bucket."""
    parts, metadata = flatten(named)
    data = np.concatenate(parts)
    storage = share(data)
    return TorchExport(bucket_pickle(metadata, storage.tensor("uint8", (data.size,))), [storage])


def export_list(named: Named, share: Share = torch_share) -> TorchExport:
    """load_format None or "direct": a list of (name, tensor)."""
    value, storages = [], []
    for name, array in named:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        storage = share(data)
        value.append((name, storage.tensor(TORCH_NAMES[array.dtype], array.shape)))
        storages.append(storage)
    return TorchExport(dumps(value), storages)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a contiguous tensor."""
    stride, step = [], 1
    for dim in reversed(shape):
        stride.append(step)
        step *= dim
    return tuple(reversed(stride))


class TorchResolver:
    """`fakes.engine.payload.Resolver` for payloads that hold torch CPU tensors. Needs torch only for what torch.save
    wrote."""

    def cuda(self, handle: Any, rank: int) -> np.ndarray:
        """There is no GPU here."""
        raise PayloadError("AssertionError", "Torch not compiled with CUDA enabled")

    def shared(self, manager: bytes, handle: bytes, size: int) -> np.ndarray:
        """A storage by name. RuntimeError `No such file or directory` when its producer is gone (observed on
        0.5.23)."""
        try:
            return shm.read_storage(handle, size)
        except shm.Gone:
            raise PayloadError("RuntimeError", "No such file or directory") from None

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


class MappedResolver(TorchResolver):
    """The same for a buffer that is read again and again while its producer fills it: mapped, not copied. A CUDA handle
    whose bytes are the name of such a file stands for the memory of a GPU that is not there."""

    def cuda(self, handle: Any, rank: int) -> np.ndarray:
        """The bytes behind a handle, live."""
        whole = self.shared(b"", handle.handle.rstrip(b"\0"), handle.offset + handle.size)
        return whole[handle.offset :]

    def shared(self, manager: bytes, handle: bytes, size: int) -> np.ndarray:
        """A storage by name, live."""
        try:
            return shm.map_storage(handle, size)
        except shm.Gone:
            raise PayloadError("RuntimeError", "No such file or directory") from None


def _torch() -> Any:
    import torch

    return torch
