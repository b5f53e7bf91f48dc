"""Payloads that a real SGLang on this machine opens: torch tensors in shared memory (`file_system`), or on a GPU.

A payload dies with its producer, so `TorchPayloads` keeps the memory until `release()`. torch is imported on first use;
SGLang is never imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fakes.trainer.torch_wire import Share, TorchExport


class TorchPayloads:
    """Makes payloads and keeps their memory alive. `share(rank)` puts bytes where the engine's rank opens them."""

    def __init__(self, share: Callable[[int], Share] | None = None) -> None:
        self._kept: list[TorchExport] = []
        self._share = share

    def one(self, named: Mapping[str, np.ndarray], load_format: str | None = "flattened_bucket", rank: int = 0) -> str:
        """The payload of `rank`, base64. ValueError for an empty bucket.

        `load_format` None and "direct" give a list of (name, tensor), "flattened_bucket" a bucket.
        """
        from fakes.trainer import torch_wire

        make = torch_wire.export_bucket if load_format == "flattened_bucket" else torch_wire.export_list
        made = make(list(named.items()), self._share(rank) if self._share else torch_wire.torch_share)
        self._kept.append(made)
        return made.payload

    def many(
        self, named: Sequence[Mapping[str, np.ndarray]], load_format: str | None = "flattened_bucket"
    ) -> list[str]:
        """One payload per entry; entry i is for tp_rank i."""
        return [self.one(entry, load_format, rank) for rank, entry in enumerate(named)]

    def release(self) -> None:
        """Free the memory of every payload made so far: one that was not opened yet can no longer be."""
        kept, self._kept = self._kept, []
        for export in kept:
            export.release()
