"""One rank's payload of update_weights_from_tensor: bytes in, named arrays out, or what SGLang would have raised.

The pickle is read by an unpickler that resolves every global to a stand-in: nothing on the list is imported, nothing
off the list is reached, and what an old prefix list admits beyond weights becomes an inert object.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Protocol

import numpy as np

from fakes.engine import standins
from fakes.engine.allowlist import AllowList
from fakes.engine.pickle_limits import check_limits
from fakes.engine.tensors import CudaHandle, PayloadError, Tensor

__all__ = ["MAX_PAYLOAD_BYTES", "CudaHandle", "PayloadError", "Resolver", "open_payload"]

MAX_PAYLOAD_BYTES = 1 << 30
MAX_INNER_BYTES = 32 << 20
"""Of all LocalSerializedTensors of one payload together: they hold handles, not weights."""
MAX_TENSORS = 1_000_000


class Resolver(Protocol):
    """Where the bytes behind a handle come from. Every method returns a one-dimensional uint8 array, without copying
    if it can.

    They raise PayloadError as the engine's torch would.
    """

    def cuda(self, handle: CudaHandle, rank: int) -> np.ndarray:
        """Map a CUDA-IPC handle in the engine's rank `rank`."""
        ...

    def shared(self, manager: bytes, handle: bytes, size: int) -> np.ndarray:
        """Open a torch CPU storage shared by file name (strategy file_system)."""
        ...

    def torch_storage(self, data: bytes) -> tuple[np.ndarray, str | None]:
        """Read a storage written by torch.save (torch.storage._load_from_bytes); with its dtype's name if it is
        typed."""
        ...


def open_payload(
    data: bytes,
    *,
    profile_allow: AllowList,
    rank: int,
    load_format: str | None,
    resolver: Resolver | None,
    unpickle_only: bool = False,
) -> list[tuple[str, np.ndarray]]:
    """The (name, array) pairs that rank `rank` would load; arrays are views of the producer's memory.

    `unpickle_only`: no runner is to load it, so nobody looks at what was unpickled, and nothing comes back.

    data: the pickle, already base64-decoded. load_format: None, "direct", "flattened_bucket"; any other is
    NotImplementedError, raised after the pickle and its tensors were opened
    (model_runner_components/weight_updater.py:341 @0.5.23).
    PayloadError carries the class and text of SGLang's exception.
    """
    payload = unpickle(data, profile_allow=profile_allow, rank=rank, resolver=resolver)
    if unpickle_only:
        return []
    try:
        if load_format == "flattened_bucket":
            return reconstruct(payload["flattened_tensor"], payload["metadata"])
        named = _named(payload, profile_allow, rank, resolver)
    except PayloadError:
        raise
    except Exception as error:  # the wrong kind of object: Python's own words, as in SGLang
        raise PayloadError(type(error).__name__, str(error)) from None
    if load_format not in (None, "direct"):
        raise PayloadError("NotImplementedError", f"Unknown load_format={load_format}")
    return named


def unpickle(data: bytes, *, profile_allow: AllowList, rank: int, resolver: Resolver | None) -> Any:
    """MultiprocessingSerializer.deserialize: the object with its tensors opened."""
    if len(data) > MAX_PAYLOAD_BYTES:
        raise PayloadError("MemoryError", f"a payload of {len(data)} bytes is larger than {MAX_PAYLOAD_BYTES}")
    checked = check_limits(data)
    table = standins.Table(profile_allow, rank, resolver)
    try:
        return _Unpickler(io.BytesIO(data[:checked]), table).load()
    except PayloadError:
        raise
    except pickle.UnpicklingError as error:
        raise PayloadError("_pickle.UnpicklingError", str(error)) from None
    except (
        Exception
    ) as error:  # whatever a malformed pickle makes a stand-in raise is what it would have raised in SGLang
        raise PayloadError(type(error).__name__, str(error)) from None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, table: standins.Table) -> None:
        super().__init__(file)
        self._table = table

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return self._table.find(module_name, global_name)


def _named(payload: Any, allow: AllowList, rank: int, resolver: Resolver | None) -> list[tuple[str, np.ndarray]]:
    """Every tensor, or this rank's part of a LocalSerializedTensor (weight_updater.py:441 @0.5.23)."""
    out, inner_bytes = [], 0
    if isinstance(payload, Tensor) and payload.shape and payload.shape[0] > MAX_TENSORS:
        raise PayloadError("MemoryError", f"a payload of more than {MAX_TENSORS} tensors")
    for name, given in payload:
        item = given
        if isinstance(item, standins.LocalSerializedTensor):
            inner = _as_bytes(item.values[rank])
            inner_bytes += len(inner)
            if inner_bytes > MAX_INNER_BYTES:
                raise PayloadError("MemoryError", f"inner payloads of more than {MAX_INNER_BYTES} bytes")
            item = unpickle(inner, profile_allow=allow, rank=rank, resolver=resolver)
        if not isinstance(item, Tensor):
            raise AttributeError(f"{type(item).__name__!r} object has no attribute 'to'")
        out.append((name, item.array()))
    return out


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        import base64

        return base64.b64decode(value, validate=True)
    return bytes(memoryview(value))


def reconstruct(flattened: Any, metadata: Any) -> list[tuple[str, np.ndarray]]:
    """FlattenedTensorBucket.reconstruct_tensors: byte offsets, no padding (weight_sync/tensor_bucket.py:115
    @0.5.23)."""
    wanted = [(meta.name, meta.shape, meta.dtype, meta.start_idx, meta.end_idx, meta.numel) for meta in metadata]
    if flattened is None:
        raise ValueError("Must provide either named_tensors or both flattened_tensor and metadata")
    out = []
    for name, shape, dtype, start, end, _ in wanted:
        out.append((name, flattened[start:end].view(dtype).reshape(shape).array()))
    return out
