"""Weight-update groups: init, destroy, and what a receive refuses before anything is sent.

Joining blocks the scheduler thread until every member is there (`Join` is an I/O effect): meanwhile nothing is
generated, no control call is answered, and health fails (utils/common.py:2859@0.5.23).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from fakes.engine import messages as m
from fakes.engine.crash import crash
from fakes.engine.protocol import Done, Join, Leave

if TYPE_CHECKING:
    from fakes.engine.scheduler import Scheduler

DTYPES = {
    "bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4, "float64": 8, "double": 8, "uint8": 1, "int8": 1,
    "int16": 2, "short": 2, "int32": 4, "int": 4, "int64": 8, "long": 8, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Attributes of torch that are dtypes, with their size in bytes."""


class Groups:
    """The groups that this engine's ranks joined."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._s = scheduler
        self._joined: dict[str, None] = {}

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Operations by name."""
        return {"init_weights_update_group": self._init, "destroy_weights_update_group": self._destroy}

    def joined(self, name: str) -> bool:
        """Whether the group is there."""
        return name in self._joined

    def names(self) -> list[str]:
        """All groups, in the order in which they were joined."""
        return list(self._joined)

    def _init(self, obj: dict[str, Any]) -> Generator[list[Any], dict[int, Done], dict[str, Any]]:
        """model_runner_components/weight_updater.py:112@0.5.23: rank_offset + tp_rank of world_size, trainer is rank 0.

        A name that exists and a backend that does not are refused by torch once the store is connected, before any
        other rank is waited for: the trainer, which does wait, is left alone.
        """
        if not obj["group_name"]:
            raise crash(m.EMPTY_GROUP)
        no_nccl = self._s.config.device == "cpu" and obj["backend"] == "nccl"
        taken = obj["group_name"] in self._joined
        if no_nccl and obj["world_size"] == 1:
            return {"success": False, "message": m.GROUP_FAILED(error=m.NO_NCCL.text)}
        effects = [
            Join(
                id=self._s.next_id(),
                rank=rank,
                group_name=obj["group_name"],
                master_address=obj["master_address"],
                master_port=obj["master_port"],
                group_rank=obj["rank_offset"] + rank,
                world_size=obj["world_size"],
                backend=obj["backend"],
                store_only=no_nccl or taken,
            )
            for rank in range(len(self._s.ranks))
        ]
        results = yield effects
        error = results[effects[0].id].error
        if error is not None:
            return {"success": False, "message": m.GROUP_FAILED(error=error.message)}
        if taken:
            return {"success": False, "message": m.GROUP_FAILED(error=m.GROUP_TAKEN.text)}
        if no_nccl:
            return {"success": False, "message": m.GROUP_FAILED(error=m.NO_NCCL.text)}
        self._joined[obj["group_name"]] = None
        return {"success": True, "message": m.GROUP_OK.text}

    def _destroy(self, obj: dict[str, Any]) -> dict[str, Any]:
        if obj["group_name"] not in self._joined:
            return {"success": False, "message": m.DESTROY_MISSING.text}
        del self._joined[obj["group_name"]]
        for rank in range(len(self._s.ranks)):
            self._s.emit(Leave(rank=rank, group_name=obj["group_name"]))
        return {"success": True, "message": m.DESTROY_OK.text}


def receive_error(
    names: Sequence[str],
    dtypes: Sequence[str],
    shapes: Sequence[Sequence[int]],
    load_format: str | None,
    *,
    strict: bool,
) -> tuple[str, int]:
    """What the receiver says before it receives, "" when it would start; and how many broadcasts it has posted by then.

    Unequal lengths are cut silently, except for the strict bucket of 0.5.23 (weight_sync/tensor_bucket.py@0.5.23).
    Without a bucket each tensor's broadcast is posted before the next tensor's dtype is looked at, and goes on after
    the request was refused (model_runner_components/weight_updater.py:280@0.5.22).
    """
    bucket = load_format == "flattened_bucket"
    strict = strict and bucket
    if strict:
        try:
            list(zip(names, dtypes, shapes, strict=True))
        except ValueError as unequal:  # in zip's own words
            return str(unequal), 0
    offset = count = 0
    for name, dtype, shape in zip(names, dtypes, shapes, strict=False):
        error = _wrong(name, dtype, shape, offset, strict=strict)
        if error:
            return error, 0 if bucket else count
        offset += DTYPES[dtype] * math.prod(shape)
        count += 1
    return ("Cannot create empty tensor bucket", 0) if bucket and not count else ("", 0)


def _wrong(name: str, dtype: str, shape: Sequence[int], offset: int, *, strict: bool) -> str:
    if dtype not in DTYPES:
        return f"module 'torch' has no attribute '{dtype}'"
    negative = next((size for size in shape if size < 0), None)
    if negative is not None and strict:
        return f"Negative dimension in received tensor {name}: torch.Size({list(shape)})"
    if negative is not None:
        return f"Trying to create tensor with negative dimension {negative}: {list(shape)}"
    if strict and offset % DTYPES[dtype]:
        return f"Unaligned received tensor {name}: byte offset {offset}, dtype torch.{dtype}"
    return ""
