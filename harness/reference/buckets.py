"""Cutting a stream of named tensors into parcels: one dtype each, bounded in bytes, the last one known as the last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Named = list[tuple[str, "np.ndarray[Any, Any]"]]


@dataclass(frozen=True)
class Parcel:
    """What one update call carries: full tensors of one dtype under HF names. `last`: nothing follows in this refit."""

    named: Named
    last: bool = False


def buckets(named: Iterable[tuple[str, np.ndarray[Any, Any]]], max_bytes: int) -> Iterator[Named]:
    """Runs of tensors of at most `max_bytes` together; a tensor that is larger travels alone."""
    if max_bytes <= 0:
        raise ValueError(f"a bucket holds at least one byte, not {max_bytes}")
    bucket: Named = []
    size = 0
    for name, tensor in named:
        if bucket and size + tensor.nbytes > max_bytes:
            yield bucket
            bucket, size = [], 0
        bucket.append((name, tensor))
        size += tensor.nbytes
    if bucket:
        yield bucket


def by_dtype(bucket: Named) -> list[Named]:
    """The bucket's tensors grouped by dtype, order kept: mixed dtypes in one flat buffer would lose their alignment."""
    groups: dict[np.dtype[Any], Named] = {}
    for name, tensor in bucket:
        groups.setdefault(tensor.dtype, []).append((name, tensor))
    return list(groups.values())


def parcels(named: Iterable[tuple[str, np.ndarray[Any, Any]]], max_bytes: int) -> Iterator[Parcel]:
    """Every tensor exactly once; looks one parcel ahead so that the last one is marked."""
    waiting: Named | None = None
    for bucket in buckets(named, max_bytes):
        for group in by_dtype(bucket):
            if waiting is not None:
                yield Parcel(waiting)
            waiting = group
    if waiting is not None:
        yield Parcel(waiting, last=True)
