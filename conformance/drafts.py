"""Draft models of scenarios: their tensors, and their checksums, which alone show them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fakes.outcome import Outcome
from harness.bench import Bench
from harness.lanes.base import EngineHandle

LAUNCH: Mapping[str, Any] = {"eagle_draft": True, "checker_cuda_shim": True}
"""Launch options of an engine with a draft."""

WHOLE = ("fc.weight", "fc.bias", "layers.0.post_attention_layernorm.weight")
"""Tensors of a draft that every rank holds whole."""


def draft(e: EngineHandle, seed: int) -> dict[str, np.ndarray]:
    """The draft's tensors of a seed, in the engine's dtype, under the names that it loads."""
    from fakes.engine.draft import draft_weights
    from fakes.tiny import NUMPY_DTYPES
    from harness.lanes.fake import model_config

    named = draft_weights(model_config(e.spec.shape, e.spec.tied, e.spec.dtype), seed)
    return {name: tensor.astype(NUMPY_DTYPES[e.spec.dtype]) for name, tensor in named.items()}


def check(e: EngineHandle) -> Outcome:
    """Ask for the checksums of target and draft."""
    return e.call("weights_checker", {"action": "checksum"})


def expect(bench: Bench, e: EngineHandle, seed: int) -> None:
    """Note what the draft's checksums are to be once it holds the tensors of a seed."""
    held = draft(e, seed)
    sums = {f"draft.model.{name}": hashlib.sha256(held[name].tobytes()).hexdigest()[:16] for name in WHOLE}
    bench.note("draft_sums", e, sums=sums)
