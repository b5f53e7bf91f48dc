"""What a request does to its own logits before a token is chosen: penalties over its output, and a bias.

In SGLang's order: frequency, presence, repetition, bias (sampling/sampling_batch_info.py:443@0.5.23), without the
overlap schedule, which counts one step late. The counts begin anew with every prefill: a request that was retracted is
forgiven what it said before (sampling/penaltylib/orchestrator.py@0.5.23).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Penalties:
    """`frequency` and `presence` are subtracted, `repetition` divides (or multiplies what is negative), `bias` is added
    to the logits of token ids."""

    frequency: float = 0.0
    presence: float = 0.0
    repetition: float = 1.0
    bias: tuple[tuple[int, float], ...] = ()

    def apply(self, logits: np.ndarray, output: Sequence[int]) -> np.ndarray:
        """float32 logits [vocab] after these penalties over the token ids of `output`; the same array where there are
        none."""
        if self == NONE:
            return logits
        shaped = logits.astype(np.float32, copy=True)
        with np.errstate(over="ignore", invalid="ignore"):
            if output:
                tokens, counts = np.unique(np.asarray(output, dtype=np.int64), return_counts=True)
                seen = shaped[tokens] - np.float32(self.frequency) * counts.astype(np.float32)
                seen -= np.float32(self.presence)
                by = np.float32(self.repetition)
                shaped[tokens] = np.where(seen < 0, seen * by, seen / by)
            for token, value in self.bias:
                shaped[token] += np.float32(value)
        return shaped


NONE = Penalties()
"""None at all."""
