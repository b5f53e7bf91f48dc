"""FlattenedTensorBucket: many tensors as one of bytes, and what is needed to cut it up again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WHERE = "sglang.srt.weight_sync.tensor_bucket"


@dataclass
class FlattenedTensorMetadata:
    """One tensor: its place in the bytes, from `start_idx` up to `end_idx`, `numel` of them."""

    name: str
    shape: Any
    dtype: Any
    start_idx: int
    end_idx: int
    numel: int


class FlattenedTensorBucket:
    """(weight_sync/tensor_bucket.py:21@0.5.23). ValueError for no tensors, and for half of a bucket."""

    supports_multi_dtypes = True

    def __init__(
        self,
        named_tensors: Sequence[tuple[str, Any]] | None = None,
        flattened_tensor: Any = None,
        metadata: list[FlattenedTensorMetadata] | None = None,
    ) -> None:
        if named_tensors is None:
            if flattened_tensor is None or metadata is None:
                raise ValueError("Must provide either named_tensors or both flattened_tensor and metadata")
            self.flattened_tensor, self.metadata = flattened_tensor, metadata
            return
        if not named_tensors:
            raise ValueError("Cannot create empty tensor bucket")
        self.metadata = list(_measured(named_tensors))
        self.flattened_tensor = _joined(named_tensors)

    def get_flattened_tensor(self) -> Any:
        """uint8, one dimension."""
        return self.flattened_tensor

    def get_metadata(self) -> list[FlattenedTensorMetadata]:
        """In the order of the bytes."""
        return self.metadata

    def reconstruct_tensors(self) -> list[tuple[str, Any]]:
        """(name, tensor): views of the bytes."""
        whole = self.flattened_tensor
        return [(m.name, whole[m.start_idx : m.end_idx].view(m.dtype).reshape(m.shape)) for m in self.metadata]


class ReceivingBucket(FlattenedTensorBucket):
    """With room made before anything has arrived: 0.5.23 (weight_sync/tensor_bucket.py:86@0.5.23)."""

    @classmethod
    def empty(cls, names: Sequence[str], dtypes: Sequence[Any], shapes: Sequence[Any], device: Any) -> ReceivingBucket:
        """ValueError for no tensors, a negative dimension, and a tensor that begins at no multiple of its item size."""
        import torch

        made: list[FlattenedTensorMetadata] = []
        place = 0
        for name, given, sizes in zip(names, dtypes, shapes, strict=True):
            dtype = given if isinstance(given, torch.dtype) else getattr(torch, given)
            shape = torch.Size(sizes)
            if min(shape, default=0) < 0:
                raise ValueError(f"Negative dimension in received tensor {name}: {shape}")
            if place % dtype.itemsize:
                raise ValueError(f"Unaligned received tensor {name}: byte offset {place}, dtype {dtype}")
            size = shape.numel() * dtype.itemsize
            made.append(FlattenedTensorMetadata(name, shape, dtype, place, place + size, size))
            place += size
        if not made:
            raise ValueError("Cannot create empty tensor bucket")
        return cls(flattened_tensor=torch.empty(place, dtype=torch.uint8, device=device), metadata=made)


def of(version: str, name: str) -> type:
    """A class of this version, by name; it says that it is SGLang's, since pickles carry that."""
    for kind in (FlattenedTensorMetadata, FlattenedTensorBucket, ReceivingBucket):
        kind.__module__ = WHERE
    if name == "FlattenedTensorMetadata":
        return FlattenedTensorMetadata
    if version != "0.5.23":
        return FlattenedTensorBucket
    ReceivingBucket.__name__ = ReceivingBucket.__qualname__ = "FlattenedTensorBucket"
    return ReceivingBucket


def _measured(named: Sequence[tuple[str, Any]]) -> Any:
    place = 0
    for name, tensor in named:
        size = tensor.numel() * tensor.element_size()
        yield FlattenedTensorMetadata(name, tensor.shape, tensor.dtype, place, place + size, size)
        place += size


def _joined(named: Sequence[tuple[str, Any]]) -> Any:
    import torch

    return torch.cat([tensor.reshape(-1).view(torch.uint8) for _, tensor in named])
