"""A process group beside the trainer's own: the default group lends nothing to it, and is as it was afterwards."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

CUMEM = "NCCL_CUMEM_ENABLE"
ENGINES_CUMEM = "0"
"""What SGLang sets in its own processes, unless launched with --enable-symm-mem (entrypoints/engine.py@0.5.23)."""


@contextmanager
def unbound(default: Any) -> Iterator[None]:
    """While the body runs the default group is bound to no device, so that a new group is not split from it.

    A split needs every rank of the default group, and only rank 0 makes the new one
    (torch/distributed/distributed_c10d.py:2040@2.13). None where there is no default group.
    """
    bound = getattr(default, "bound_device_id", None)
    if bound is None:
        yield
        return
    default.bound_device_id = None
    try:
        yield
    finally:
        default.bound_device_id = bound


def choose_cumem(env: MutableMapping[str, str]) -> None:
    """Allocate as the engines do. NCCL reads it once, at the first group of the process: call this before any."""
    env[CUMEM] = ENGINES_CUMEM
