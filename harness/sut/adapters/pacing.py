"""Trainer processes live on the lane's clock: where a second of the engines is a tenth of one, so is theirs.

Sleeps and time-outs of the standard library and of event loops shrink by the scale, and what clocks show grows by it,
so that a framework's own "60 s" meets an engine's on equal terms.
"""

from __future__ import annotations

import select
import selectors
import socket
import threading
import time
from typing import Any


def pace(scale: float) -> None:
    """From now on `scale` real seconds are one second to Python code of this process. Called once, after a fork."""
    if scale == 1.0:
        return
    _clocks(scale)
    _selectors(scale)
    _sockets(scale)
    _locks(scale)


def _clocks(scale: float) -> None:
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(float(seconds) * scale)
    for name in ("monotonic", "time", "perf_counter"):
        real = getattr(time, name)
        setattr(time, name, _faster(real, real(), scale))


def _faster(real: Any, origin: float, scale: float) -> Any:
    return lambda: origin + (real() - origin) / scale


def _selectors(scale: float) -> None:
    for name in ("SelectSelector", "PollSelector", "EpollSelector"):
        kind = getattr(selectors, name, None)
        if kind is not None:
            kind.select = _scaled_method(kind.select, scale)
    real = select.select
    select.select = lambda r, w, x, timeout=None: real(r, w, x, None if timeout is None else timeout * scale)


def _scaled_method(real: Any, scale: float) -> Any:
    def scaled(self: Any, timeout: float | None = None) -> Any:
        return real(self, timeout if timeout is None or timeout <= 0 else timeout * scale)

    return scaled


def _sockets(scale: float) -> None:
    real = socket.socket.settimeout

    def settimeout(self: Any, value: float | None) -> None:
        real(self, value if not value else value * scale)

    socket.socket.settimeout = settimeout  # type: ignore[method-assign]


def _locks(scale: float) -> None:
    real_condition, real_join = threading.Condition.wait, threading.Thread.join  # Event.wait goes through a Condition

    def wait(self: Any, timeout: float | None = None) -> bool:
        return bool(real_condition(self, None if timeout is None else timeout * scale))

    def join(self: Any, timeout: float | None = None) -> None:
        real_join(self, None if timeout is None else timeout * scale)

    threading.Condition.wait = wait  # type: ignore[method-assign]
    threading.Thread.join = join  # type: ignore[method-assign]
