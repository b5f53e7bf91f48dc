"""Forward steps that were computed before: the same weights and the same tokens give the same logits and KV.

Only clean steps are kept: all KV made by the weights that run now, which `state_id` names by content. A step over
stale KV,
or one that wants prompt log-probabilities, is always computed. Shared by all engines of the process, since fleets and
fault exploration ask the same questions of the same weights thousands of times; bounded, least recently used out first.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

Key = tuple[str, str, tuple[int, ...]]
"""Model, state id, all tokens up to the step's last one."""

MAX_BYTES = 96 << 20


class StepMemo:
    """(logits float32 [vocab], KV of the tokens that the step computed) by key. Arrays are never written to."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._entries: OrderedDict[Key, tuple[np.ndarray, np.ndarray]] = OrderedDict()
        self._left = max_bytes

    def get(self, key: Key, tokens: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The step, if at least `tokens` of its KV are kept; the KV is cut to the last `tokens`."""
        found = self._entries.get(key)
        if found is None or len(found[1]) < tokens:
            return None
        self._entries.move_to_end(key)
        return found[0], found[1][len(found[1]) - tokens :]

    def put(self, key: Key, logits: np.ndarray, kv: np.ndarray) -> None:
        """Keep a step; the longer KV wins."""
        old = self._entries.pop(key, None)
        if old is not None:
            self._left += old[0].nbytes + old[1].nbytes
            kv = kv if len(kv) >= len(old[1]) else old[1]
        self._entries[key] = (logits, kv)
        self._left -= logits.nbytes + kv.nbytes
        while self._left < 0:
            _, (gone, dropped) = self._entries.popitem(last=False)
            self._left += gone.nbytes + dropped.nbytes

    def clear(self) -> None:
        """Forget everything."""
        for logits, kv in self._entries.values():
            self._left += logits.nbytes + kv.nbytes
        self._entries.clear()


SHARED = StepMemo()


def model_key(model_config: Mapping[str, Any], tp_size: int, dtype: str) -> str:
    """What makes two engines compute alike, besides their weights."""
    text = json.dumps([dict(model_config), tp_size, dtype], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
