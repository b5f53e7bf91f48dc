"""The payloads of an oracle's tensor updates: one pickle per kind, the same for SGLang's unpickler and the fake's.

A tensor is what `pickle.dumps` makes of a CPU tensor: `_rebuild_tensor_v2` over a storage that torch.save wrote. The
storages come from the oracle's torch; without one they are a name, which the fake's side resolves all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fakes.trainer.pickling import Global, Object, Reduce, dumps

NORM = "model.norm.weight"
NORM_SIZE = 64
"""The one parameter of the oracle's model, and its length; the fake's tiny Llama has it in the same shape."""

Storage = Callable[[int], bytes]
_METADATA = Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata")
_SIZE = Global("torch", "Size")


def named_storage(count: int) -> bytes:
    """What stands for the storage of `count` float32 ones where no torch is asked."""
    return f"float32 ones {count}".encode()


def _tensor(storage: Storage, count: int) -> Reduce:
    hooks = Reduce(Global("collections", "OrderedDict"), ())
    held = Reduce(Global("torch.storage", "_load_from_bytes"), (storage(count),))
    return Reduce(Global("torch._utils", "_rebuild_tensor_v2"), (held, 0, (count,), (1,), False, hooks))


def _list(name: str, count: int) -> Callable[[Storage], Any]:
    return lambda storage: [(name, _tensor(storage, count))]


KINDS: Mapping[str, Callable[[Storage], Any]] = {
    "good": _list(NORM, NORM_SIZE),
    "unknown": _list("model.nothing.weight", 2),
    "misfit": _list(NORM, 2),
    "empty": lambda storage: [],
    "mapping": lambda storage: {NORM: _tensor(storage, NORM_SIZE)},
    "number": lambda storage: 7,
    "pairs_of_three": lambda storage: [(NORM, _tensor(storage, NORM_SIZE), 1)],
    "no_tensor": lambda storage: [(NORM, 5)],
    "blocked_eval": lambda storage: [Reduce(Global("builtins", "eval"), ("1",))],
    "blocked_module": lambda storage: [Reduce(Global("os", "getcwd"), ())],
    "half_a_bucket": lambda storage: {"metadata": []},
    "bare_metadata": lambda storage: {"flattened_tensor": None, "metadata": [Object(_METADATA, {"name": "x"})]},
}
"""Kinds by name: what is pickled. `garbage` is no pickle."""
PLAIN = ("good", "unknown", "misfit", "empty")
"""Those whose meaning does not depend on an unpickler."""
EVERY = (*KINDS, "garbage", "nothing")


def pickled(kind: str, storage: Storage = named_storage) -> bytes:
    """The payload of `kind`."""
    if kind in ("garbage", "nothing"):
        return b"not a pickle" if kind == "garbage" else b""
    return dumps(KINDS[kind](storage))


class NamedStorages:
    """The fake's resolver for `named_storage`; there is nothing else to resolve."""

    def torch_storage(self, data: bytes) -> tuple[np.ndarray, str | None]:
        """float32 ones, as bytes."""
        count = int(data.rsplit(b" ", 1)[1])
        return np.ones(count, np.float32).view(np.uint8), "float32"

    def cuda(self, handle: Any, rank: int) -> np.ndarray:
        """Never asked."""
        raise NotImplementedError

    def shared(self, manager: bytes, handle: bytes, size: int) -> np.ndarray:
        """Never asked."""
        raise NotImplementedError
