"""Payloads over simulated CUDA IPC: the pickles that a trainer's torch and SGLang would write, without either.

A tensor is `_rebuild_cuda_tensor_modified(...)` with the GPU's uuid in place of its index (utils/patch_torch.py:62
@0.5.23), a bucket is `{"flattened_tensor": uint8 tensor, "metadata": [FlattenedTensorMetadata]}` with byte offsets.
"""

from __future__ import annotations

import base64
import hashlib
import pickle
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fakes.tiny import TORCH_NAMES
from fakes.trainer.memory import Block
from fakes.trainer.pickling import Global, Object, Reduce, Writer, dumps
from fakes.trainer.registry import Consumer, ExportRegistry, HandleRecord, gpu_uuid

Named = Sequence[tuple[str, np.ndarray]]

_REBUILD = Global("sglang.srt.utils.patch_torch", "_rebuild_cuda_tensor_modified")
_METADATA = Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata")
_TENSOR, _SIZE = Global("torch", "Tensor"), Global("torch", "Size")
_STORAGE = Global("torch.storage", "TypedStorage")


def digest_of(payload: str) -> str:
    """How a history names a payload: the first 16 hex digits of the sha256 of its base64 text."""
    return hashlib.sha256(payload.encode()).hexdigest()[:16]


class Metadata(NamedTuple):
    """One tensor of a bucket: dtype by name, start_idx, end_idx and numel in bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    start_idx: int
    end_idx: int
    numel: int


def flatten(named: Named) -> tuple[list[np.ndarray], list[Metadata]]:
    """The byte arrays of a bucket and what describes them; no padding between tensors.

    ValueError `Cannot create empty tensor bucket` for nothing (weight_sync/tensor_bucket.py:51 @0.5.23).
    """
    if not named:
        raise ValueError("Cannot create empty tensor bucket")
    parts, metadata, offset = [], [], 0
    for name, array in named:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        end = offset + data.size
        metadata.append(Metadata(name, array.shape, TORCH_NAMES[array.dtype], offset, end, data.size))
        parts.append(data)
        offset = end
    return parts, metadata


def bucket_pickle(metadata: Sequence[Metadata], flattened: Reduce) -> bytes:
    """The pickle of {"metadata": [...], "flattened_tensor": ...}."""
    writer = _described(tuple(metadata)).fork()
    writer.write("flattened_tensor")
    writer.write(flattened)
    writer.raw(pickle.SETITEMS)
    return writer.end()


@lru_cache(maxsize=512)
def _described(metadata: tuple[Metadata, ...]) -> Writer:
    """The beginning of a bucket's pickle, up to its metadata: the same for every refit of one model."""
    writer = Writer()
    writer.raw(pickle.EMPTY_DICT + pickle.MARK)
    writer.write("metadata")
    writer.write(
        [
            Object(
                _METADATA,
                {
                    **meta._asdict(),
                    "shape": Reduce(_SIZE, (meta.shape,)),
                    "dtype": Global("torch", meta.dtype),
                },
            )
            for meta in metadata
        ]
    )
    return writer


class CudaExport:
    """One payload and the device memory behind it. `payload` is base64 text, `sha256` its digest in histories."""

    def __init__(self, registry: ExportRegistry, items: list[HandleRecord], data: bytes) -> None:
        self.payload = base64.b64encode(data).decode()
        self.sha256 = digest_of(self.payload)
        self._registry = registry
        self._items = items

    @property
    def opened(self) -> int:
        """How often any handle of it was opened."""
        return sum(len(item.opened) for item in self._items)

    def release(self) -> None:
        """Release every handle and free the memory: it is poisoned from here on. A second call does nothing."""
        items, self._items = self._items, []
        for item in items:
            self._registry.release(item)
        for item in items:
            self._registry.free(item.rank, item.block)


def export_bucket(
    registry: ExportRegistry, rank: int, named: Named, consumers: Sequence[Consumer] = (), *, recorded: bool = True
) -> CudaExport:
    """load_format="flattened_bucket": one allocation, one handle. ValueError for an empty bucket."""
    parts, metadata = flatten(named)
    block = registry.allocate(rank, sum(part.size for part in parts))
    block.fill(parts)
    return _export(registry, rank, [(block, metadata)], named, consumers, recorded)


def export_list(
    registry: ExportRegistry,
    rank: int,
    named: Named,
    consumers: Sequence[Consumer] = (),
    *,
    recorded: bool = True,
    as_dict: bool = False,
) -> CudaExport:
    """load_format None or "direct": a list of (name, tensor), one handle per tensor; of an adapter it is a dict."""
    blocks = []
    for name, array in named:
        parts, metadata = flatten([(name, array)])
        block = registry.allocate(rank, parts[0].size)
        block.fill(parts)
        blocks.append((block, metadata))
    return _export(registry, rank, blocks, named, consumers, recorded, as_list=True, as_dict=as_dict)


def probe_payloads(
    registry: ExportRegistry, named: Sequence[Mapping[str, np.ndarray]], load_format: str | None = "flattened_bucket"
) -> list[str]:
    """One payload per entry, from memory that nobody frees: not recorded, not counted, openable any number of times."""
    make = export_bucket if load_format == "flattened_bucket" else export_list
    return [make(registry, rank, list(entry.items()), recorded=False).payload for rank, entry in enumerate(named)]


def _export(
    registry: ExportRegistry,
    rank: int,
    blocks: list[tuple[Block, list[Metadata]]],
    named: Named,
    consumers: Sequence[Consumer],
    recorded: bool,
    *,
    as_list: bool = False,
    as_dict: bool = False,
) -> CudaExport:
    """Handle ids are given by the registry when it records the export, so they are known before the pickle is
    written."""
    planned = registry.plan(rank, [block for block, _ in blocks], consumers, recorded=recorded)
    if as_list:
        named_tensors = [
            (meta[0].name, _tensor(item, meta[0].dtype, meta[0].shape))
            for item, (_, meta) in zip(planned, blocks, strict=True)
        ]
        data = dumps(dict(named_tensors) if as_dict else named_tensors)
    else:
        item, (_, metadata) = planned[0], blocks[0]
        data = bucket_pickle(metadata, _tensor(item, "uint8", (item.block.size,)))
    export = CudaExport(registry, planned, data)
    for item in planned:
        registry.announce(item, names=[name for name, _ in named], sha256=export.sha256)
    return export


def _tensor(item: HandleRecord, dtype: str, shape: tuple[int, ...]) -> Reduce:
    stride, step = [], 1
    for dim in reversed(shape):
        stride.append(step)
        step *= dim
    nbytes = item.block.size
    return Reduce(
        _REBUILD,
        (
            _TENSOR,
            Reduce(_SIZE, (shape,)),
            tuple(reversed(stride)),
            0,
            _STORAGE,
            Global("torch", dtype),
            gpu_uuid(item.block.gpu),
            item.handle,
            nbytes,
            0,
            False,
            b"refitcheck-refcount".ljust(36, b"\0"),
            item.id,
            b"\0" * 64,
            True,
        ),
    )
