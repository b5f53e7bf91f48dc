"""The trainer kit: N ranks that hold shards of a policy, export it, and account for every handle."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np

from fakes.trainer import wire
from fakes.trainer.comm import Communicators, Crew, ThreadCrew, WorldCrew
from fakes.trainer.disk import SharedDisk
from fakes.trainer.lock import LockActor
from fakes.trainer.policy import Layout, RankPolicy, merge
from fakes.trainer.registry import Consumer, ExportRegistry, Record

if TYPE_CHECKING:
    from fakes.trainer.torch_wire import Share
    from fakes.trainer.worker_line import WorkerLine
    from fakes.transport.groups import Groups
    from fakes.transport.ipc import Hub
    from fakes.transport.nixl import Fabric
    from fakes.world import World

T = TypeVar("T")
Spoil = Callable[[int, Iterator[tuple[str, np.ndarray]]], Iterator[tuple[str, np.ndarray]]]
Wire = Literal["cuda", "torch", "shm"]
POLL_S = 0.0002  # for what other threads do, in real seconds
Allocation = Literal["regular", "vmm"]
"""Where the storage of an export comes from: the ordinary pool, or a torch_memory_saver region (virtual memory)."""


class Export(Protocol):
    """One payload for one consumer rank."""

    payload: str
    sha256: str

    def release(self) -> None:
        """The producer's storage may be used again. A second call does nothing."""
        ...


class TrainerKit:
    """`Fleet.trainer` of a lane.

    world: where the ranks run, or None for plain threads in real seconds. record(name, rank, data) gets the trainer
    records. wire: "cuda" for simulated CUDA-IPC handles (the registry opens them), "torch" for torch's CPU shared
    memory, or what `share(rank)` puts bytes into. layout: how the policy is cut. A rank may call the collectives only
    from inside `run`.

    `groups` is the way into groups with engine ranks, `lock` the one that trainers share, `disk` what engines read,
    too. `transposed` set: the export's matrices are views of transposed memory, as a bridge between layouts makes them.
    """

    def __init__(
        self,
        world: World | None,
        ranks: int,
        record: Record | None = None,
        *,
        registry: ExportRegistry | None = None,
        wire: Wire = "cuda",
        layout: Layout = "fsdp",
        groups: Callable[[TrainerKit], Groups] | None = None,
        share: Callable[[int], Share] | None = None,
    ) -> None:
        self.ranks = ranks
        self.transposed = False
        self.spoil: Spoil | None = None
        self.layout: Layout = layout
        self.registry = registry if registry is not None else ExportRegistry()
        self._record: Record = record if record is not None else _ignore
        self.registry.record = self._record
        self._wire: Wire = wire
        self._share = share
        self._crew: Crew = WorldCrew(world) if world is not None else ThreadCrew()
        self._live: set[_TorchRecord] = set()
        self._comm = Communicators(self._crew, ranks)
        self._ids = itertools.count(1)
        self._make_groups = groups
        self._groups: Groups | None = None
        self._fabric: Fabric | None = None
        self._ipc = world.ipc if world is not None else None
        self._until = world.block if world is not None else None
        self._now = time.monotonic if world is None else lambda: world.now
        self.disk = SharedDisk(self.record)
        self.lock = LockActor(time.monotonic if world is None else lambda: world.now, self.record)

    # Groups with engines.

    @property
    def groups(self) -> Groups:
        """Made when first asked for. NotImplementedError on a lane that has none."""
        if self._groups is None:
            if self._make_groups is None:
                raise NotImplementedError("this lane has no groups between a trainer and its engines")
            self._groups = self._make_groups(self)
        return self._groups

    @property
    def fabric(self) -> Fabric:
        """Where NIXL agents of trainer ranks and of processes beside engines meet."""
        if self._fabric is None:
            from fakes.transport.nixl import Fabric

            self._fabric = Fabric(self.record)
        return self._fabric

    @property
    def ipc(self) -> Hub:
        """Where parameter servers bind what checkpoint-engine workers connect to. NotImplementedError on a lane of
        real sockets."""
        if self._ipc is None:
            raise NotImplementedError("this lane has no virtual sockets")
        return self._ipc

    def worker_line(self, rank: int, address: str, nbytes: int, consumers: Sequence[Consumer]) -> WorkerLine:
        """A line of `rank` to a checkpoint-engine worker, with a buffer of its own. OSError for an address that is
        taken, NotImplementedError on a lane of real sockets."""
        from fakes.trainer.worker_line import WorkerLine

        return WorkerLine(self, rank, address, nbytes, consumers)

    def record(self, name: str, rank: int, data: Mapping[str, Any]) -> None:
        """What a rank did."""
        self._record(name, rank, data)

    # Ranks.

    def run(
        self, fn: Callable[[int], T], timeout_s: float, beside: Sequence[Callable[[], T]] = ()
    ) -> list[T | BaseException]:
        """`fn(rank)` on every rank's thread, in a fresh communicator; results or errors by rank. One rank runs in
        the caller. `beside`: functions of other processes, each in a thread of its own; their results follow."""
        self._comm = Communicators(self._crew, self.ranks)
        if beside:
            every: list[Callable[[], T]] = [*(partial(fn, rank) for rank in range(self.ranks)), *beside]
            return self._crew.run(lambda index: every[index](), len(every), timeout_s)
        if self.ranks == 1:
            try:
                return [fn(0)]
            except BaseException as error:
                return [error]
        return self._crew.run(fn, self.ranks, timeout_s)

    def until(self, ready: Callable[[], bool], timeout_s: float, what: str) -> bool:
        """Wait until `ready()`, which must not raise or wait, or for so long; whether it came true."""
        end = self._now() + timeout_s
        if self._until is not None:
            return self._until(ready, end, what)
        while not ready():
            if self._now() >= end:
                return False
            time.sleep(POLL_S)
        return True

    def barrier(self, rank: int, timeout_s: float) -> None:
        """All ranks meet. TimeoutError."""
        self._comm.of()[0].barrier(rank, timeout_s)

    def gather(
        self, rank: int, value: Any, *, dst: int, group: Sequence[int] | None = None, timeout_s: float
    ) -> list[Any] | None:
        """The values of `group` (global ranks, all by default) in its order on global rank `dst`, None elsewhere.
        TimeoutError."""
        members = self._comm.of(group)
        return members[0].gather(members[1].index(rank), value, members[1].index(dst), timeout_s)

    def all_gather(self, rank: int, value: Any, timeout_s: float) -> list[Any]:
        """Every rank's value on every rank. TimeoutError."""
        return self._comm.of()[0].all_gather(rank, value, timeout_s)

    def broadcast(self, rank: int, value: Any, *, src: int, timeout_s: float) -> Any:
        """The value of rank `src` on every rank. TimeoutError."""
        return self._comm.of()[0].broadcast(rank, value, src, timeout_s)

    # The policy.

    def policy(self, rank: int, state: Mapping[str, np.ndarray]) -> RankPolicy:
        """What `rank` holds of a state."""
        return RankPolicy(state, rank, self.ranks, self.layout)

    def stream(self, rank: int, state: Mapping[str, np.ndarray], timeout_s: float) -> Iterator[tuple[str, np.ndarray]]:
        """The export in HF names and full shapes, in the state's order: per tensor one all_gather of all ranks.
        TimeoutError. `spoil` set: what it makes of a rank's export."""
        walk = self._walk(rank, state, timeout_s)
        return walk if self.spoil is None else self.spoil(rank, walk)

    def _walk(self, rank: int, state: Mapping[str, np.ndarray], timeout_s: float) -> Iterator[tuple[str, np.ndarray]]:
        self._record("walk", rank, {"tensors": len(state)})
        policy = self.policy(rank, state)
        for name, shard in policy.shards.items():
            parts = self.all_gather(rank, (name, shard), timeout_s)
            others = {other for other, _ in parts}
            if others != {name}:
                raise RuntimeError(f"trainer ranks export different tensors at once: {', '.join(sorted(others))}")
            full = merge(name, [part for _, part in parts], policy.shapes[name], self.layout)
            yield name, np.asfortranarray(full) if self.transposed else full

    # Exports.

    def export(
        self,
        rank: int,
        named: Sequence[tuple[str, np.ndarray]],
        consumers: Sequence[Consumer] = (),
        load_format: str | None = "flattened_bucket",
        *,
        allocation: Allocation = "regular",
    ) -> Export:
        """One payload of `rank`, meant for the given (engine, tp_rank) pairs; its memory is kept until it is released.

        ValueError for an empty bucket. RuntimeError `CUDA error: invalid argument` where the storage lies in a region
        of the memory saver: what cuMemMap mapped has no IPC handle (THUDM/slime#2188); recorded as `export_refused`.
        """
        if allocation == "vmm":
            names = [name for name, _ in named]
            self._record("export_refused", rank, {"gpu": rank, "allocation": allocation, "names": names})
            raise RuntimeError("CUDA error: invalid argument")
        bucket = load_format == "flattened_bucket"
        if self._wire == "cuda":
            make = wire.export_bucket if bucket else wire.export_list
            return make(self.registry, rank, named, consumers)
        from fakes.trainer import torch_wire

        usual: Share = torch_wire.torch_share if self._wire == "torch" else torch_wire.file_share
        share = self._share(rank) if self._share is not None else usual
        inner = torch_wire.export_bucket(named, share) if bucket else torch_wire.export_list(named, share)
        made = _TorchRecord(inner, next(self._ids), rank, self._record, self._live.discard)
        self._live.add(made)
        self._record(
            "export",
            rank,
            {
                "export": made.id,
                "gpu": rank,
                "consumers": [list(consumer) for consumer in consumers],
                "bytes": int(sum(array.nbytes for _, array in named)),
                "names": [name for name, _ in named],
                "sha256": made.sha256,
            },
        )
        return made

    def lose_rank(self, rank: int) -> None:
        """The process of a rank ends: what it exported can no longer be opened (torch's shared memory is unlinked)."""
        self.registry.lose_rank(rank)
        for export in [e for e in self._live if e.rank == rank]:
            export.forget()

    def live_exports(self) -> int:
        """Exports that nobody has released."""
        return self.registry.live() + len(self._live)

    def close(self) -> None:
        """Free what torch still shares; simulated memory goes with the registry."""
        for export in list(self._live):
            export.release()
        if self._groups is not None:
            self._groups.close()
        self.disk.close()


class _TorchRecord:
    """A torch export that is recorded: nobody here sees it opened."""

    def __init__(self, inner: Any, id: int, rank: int, record: Record, forget: Callable[[_TorchRecord], None]) -> None:
        self.id = id
        self.payload: str = inner.payload
        self.sha256: str = inner.sha256
        self._inner = inner
        self.rank = rank
        self._record = record
        self._forget = forget
        self._released = False

    def forget(self) -> None:
        """The producer is gone, and its shared memory with it; nobody is left to record that."""
        if not self._released:
            self._released = True
            self._forget(self)
            self._inner.release()

    def release(self) -> None:
        """Free the shared memory."""
        if self._released:
            return
        self._released = True
        self._forget(self)
        self._record("release", self.rank, {"export": self.id, "gpu": self.rank})
        self._inner.release()
        self._record("free", self.rank, {"export": self.id, "gpu": self.rank, "exports": [self.id]})


def _ignore(name: str, rank: int, data: Mapping[str, Any]) -> None:
    """No trace."""
