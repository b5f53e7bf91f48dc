"""Payloads that a real SGLang on this machine opens: torch CPU tensors in shared memory, strategy `file_system`.

A payload dies with its producer, so `TorchPayloads` keeps the memory until `release()`. torch is imported on first use;
SGLang is never imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fakes.trainer.torch_wire import TorchExport


class TorchPayloads:
    """Makes payloads and keeps their shared memory alive."""

    def __init__(self) -> None:
        self._kept: list[TorchExport] = []

    def one(self, named: Mapping[str, np.ndarray], load_format: str | None = "flattened_bucket") -> str:
        """One rank's payload, base64. ValueError for an empty bucket.

        `load_format` None and "direct" give a list of (name, tensor), "flattened_bucket" a bucket.
        """
        from fakes.trainer import torch_wire

        make = torch_wire.export_bucket if load_format == "flattened_bucket" else torch_wire.export_list
        made = make(list(named.items()), torch_wire.torch_share)
        self._kept.append(made)
        return made.payload

    def many(
        self, named: Sequence[Mapping[str, np.ndarray]], load_format: str | None = "flattened_bucket"
    ) -> list[str]:
        """One payload per entry."""
        return [self.one(entry, load_format) for entry in named]

    def release(self) -> None:
        """Free the shared memory of every payload made so far: one that was not opened yet can no longer be."""
        kept, self._kept = self._kept, []
        for export in kept:
            export.release()
