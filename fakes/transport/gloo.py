"""Weight-update groups over real gloo: any number of ranks in one process, met by a trainer of any make.

A rank is one ProcessGroupGloo over a TCPStore of its own, under the keys that torch's helper would use for it
(distributed_c10d.py:2060@2.13, and utils/common.py:2905@0.5.23 around it): so the other side may be ours, SGLang's
`init_custom_process_group`, or a trainer's copy of it. torch is imported when the first group is made.

Every call of torch's that waits runs in a thread of its own. What gloo does when a message is longer than its buffer it
does here, too: the process is aborted. This is the engine's side; the trainer's is in `gloo_groups`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from fakes.engine.protocol import Done, Join, Leave, Raised, Recv
from fakes.transport.peers import RENDEZVOUS_S, Later, Process
from fakes.transport.received import named_of, sizes_of

# -- one rank ----------------------------------------------------------------------------------------------------------


def _torch() -> Any:
    import torch
    import torch.distributed

    return torch


def keys_of(name: str, store: Any) -> Any:
    """The store under the prefixes that torch and SGLang put before a rank's own keys."""
    prefix = _torch().distributed.PrefixStore
    return prefix("cpu/", prefix(f"{name}/", prefix(name, store)))


def connect(address: str, port: int, world_size: int, *, host: bool, timeout_s: float) -> Any:
    """The store of a group: made here by its rank 0, else connected to, again and again until the time is over."""
    store = _torch().distributed.TCPStore
    timeout = timedelta(seconds=timeout_s)
    return store(address, port, world_size, host, timeout=timeout, wait_for_workers=not host)


def form(store: Any, name: str, rank: int, world_size: int, timeout_s: float) -> Any:
    """Wait until every rank has come; the process group. RuntimeError with torch's words when they have not."""
    group = _torch().distributed.ProcessGroupGloo
    return group(keys_of(name, store), rank, world_size, timedelta(seconds=timeout_s))


def post(group: Any, buffer: np.ndarray) -> Any:
    """One broadcast from rank 0 into or out of `buffer` (bytes); its Work."""
    torch = _torch()
    options = torch.distributed.BroadcastOptions()
    options.rootRank = options.rootTensor = 0
    return group.broadcast([torch.from_numpy(buffer)], options)


def words(error: BaseException) -> Raised:
    """What torch raised, without its C++ frames."""
    text = str(error).split("\nException raised from", 1)[0].strip()
    return Raised(type(error).__name__, text)


# -- the engine's side -------------------------------------------------------------------------------------------------


class GlooTransport:
    """`Transport` of an engine that is a process of its own; `scale` is real seconds per second of its core."""

    def __init__(self, scale: float = 1.0, timeout_s: float = RENDEZVOUS_S) -> None:
        self.timeout_s = timeout_s * scale
        self._members: dict[tuple[int, str], tuple[Any, Any]] = {}

    def join(self, process: Process, effect: Join, finish: Callable[[Done], None], later: Later) -> None:
        """Meet the others in a thread; `finish` runs on the event loop."""

        def work() -> None:
            host = effect.group_rank == 0
            store = connect(
                effect.master_address, effect.master_port, effect.world_size, host=host, timeout_s=self.timeout_s
            )
            if not effect.store_only:
                group = form(store, effect.group_name, effect.group_rank, effect.world_size, self.timeout_s)
                self._members[effect.rank, effect.group_name] = (group, store)

        _beside(work, lambda error: finish(Done(effect.id, error=error)))

    def recv(self, process: Process, effect: Recv, finish: Callable[[Done], None], later: Later) -> None:
        """Take part in the broadcasts, in a thread. All are posted before the first is waited for."""
        member = self._members.get((effect.rank, effect.group_name))
        received: list[Any] = []

        def work() -> None:
            if member is None:
                raise RuntimeError(f"Group {effect.group_name} has no member rank {effect.rank}")
            buffers = [np.empty(size, dtype=np.uint8) for size in sizes_of(effect)]
            for posted in [post(member[0], buffer) for buffer in buffers]:
                posted.wait()
            received.append(named_of(effect, buffers))

        def end(error: Raised | None) -> None:
            found = error if error is not None else received[0]
            finish(Done(effect.id, error=found) if isinstance(found, Raised) else Done(effect.id, value=found))

        _beside(work, end)

    def leave(self, process: Process, effect: Leave) -> None:
        """Close this rank's connections: they go with their process group, which nobody waits in."""
        self._members.pop((effect.rank, effect.group_name), None)

    def left(self, engine: str, incarnation: int) -> None:
        """The process is about to end, and its connections with it."""


def _beside(work: Callable[[], None], end: Callable[[Raised | None], None]) -> None:
    """Run `work` in a thread, `end` with its error on the running event loop. The thread does not keep the process."""
    loop = asyncio.get_running_loop()

    def body() -> None:
        error: Raised | None = None
        try:
            work()
        except Exception as raised:
            error = words(raised)
        loop.call_soon_threadsafe(end, error)

    threading.Thread(target=body, name="group", daemon=True).start()
