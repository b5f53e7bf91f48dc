"""`time` in virtual time, for clients that were not written for a fake: their sleeps and clocks are the world's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fakes.world.baton import Baton

EPOCH_NS = 1_700_000_000 * 10**9
"""What time.time() says at the world's time 0, in nanoseconds."""


@contextmanager
def patched_time(baton: Baton) -> Iterator[None]:
    """Replace sleep, time, monotonic and perf_counter (and their _ns) of the time module while the block runs.

    For the whole process: other threads see it too. Names that a module imported before ("from time import sleep")
    stay real.
    """

    def nanoseconds() -> int:
        return round(baton.now * 1e9)

    patches: dict[str, Callable[..., Any]] = {
        "sleep": baton.sleep,
        "time": lambda: (EPOCH_NS + nanoseconds()) / 1e9,
        "time_ns": lambda: EPOCH_NS + nanoseconds(),
    }
    for name in ("monotonic", "perf_counter"):
        patches[name] = lambda: baton.now
        patches[f"{name}_ns"] = nanoseconds
    real = {name: getattr(time, name) for name in patches}
    try:
        for name, patch in patches.items():
            setattr(time, name, patch)
        yield
    finally:
        for name, function in real.items():
            setattr(time, name, function)
