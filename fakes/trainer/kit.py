"""The trainer kit: N ranks that hold shards of a policy, export it, and account for every handle."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np

from fakes.trainer import wire
from fakes.trainer.comm import Communicators, Crew, ThreadCrew, WorldCrew
from fakes.trainer.policy import Layout, RankPolicy, merge
from fakes.trainer.registry import Consumer, ExportRegistry, Record

if TYPE_CHECKING:
    from fakes.world import World

T = TypeVar("T")
Wire = Literal["cuda", "torch", "shm"]


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
    memory. layout: how the policy is cut. A rank may call the collectives only from inside `run`.
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
    ) -> None:
        self.ranks = ranks
        self.layout: Layout = layout
        self.registry = registry if registry is not None else ExportRegistry()
        self._record: Record = record if record is not None else _ignore
        self.registry.record = self._record
        self._wire: Wire = wire
        self._crew: Crew = WorldCrew(world) if world is not None else ThreadCrew()
        self._live: set[_TorchRecord] = set()
        self._comm = Communicators(self._crew, ranks)
        self._ids = itertools.count(1)

    # Ranks.

    def run(self, fn: Callable[[int], T], timeout_s: float) -> list[T | BaseException]:
        """`fn(rank)` on every rank's thread, in a fresh communicator; results or errors by rank. One rank runs in
        the caller."""
        self._comm = Communicators(self._crew, self.ranks)
        if self.ranks == 1:
            try:
                return [fn(0)]
            except BaseException as error:
                return [error]
        return self._crew.run(fn, self.ranks, timeout_s)

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
        TimeoutError."""
        policy = self.policy(rank, state)
        for name, shard in policy.shards.items():
            parts = self.all_gather(rank, (name, shard), timeout_s)
            others = {other for other, _ in parts}
            if others != {name}:
                raise RuntimeError(f"trainer ranks export different tensors at once: {', '.join(sorted(others))}")
            yield name, merge(name, [part for _, part in parts], policy.shapes[name], self.layout)

    # Exports.

    def export(
        self,
        rank: int,
        named: Sequence[tuple[str, np.ndarray]],
        consumers: Sequence[Consumer] = (),
        load_format: str | None = "flattened_bucket",
    ) -> Export:
        """One payload of `rank`, meant for the given (engine, tp_rank) pairs; its memory is kept until it is released.

        ValueError for an empty bucket.
        """
        bucket = load_format == "flattened_bucket"
        if self._wire == "cuda":
            make = wire.export_bucket if bucket else wire.export_list
            return make(self.registry, rank, named, consumers)
        from fakes.trainer import torch_wire

        share = torch_wire.torch_share if self._wire == "torch" else torch_wire.file_share
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

    def live_exports(self) -> int:
        """Exports that nobody has released."""
        return self.registry.live() + len(self._live)

    def close(self) -> None:
        """Free what torch still shares; simulated memory goes with the registry."""
        for export in list(self._live):
            export.release()


class _TorchRecord:
    """A torch export that is recorded: nobody here sees it opened."""

    def __init__(self, inner: Any, id: int, rank: int, record: Record, forget: Callable[[_TorchRecord], None]) -> None:
        self.id = id
        self.payload: str = inner.payload
        self.sha256: str = inner.sha256
        self._inner = inner
        self._rank = rank
        self._record = record
        self._forget = forget
        self._released = False

    def release(self) -> None:
        """Free the shared memory."""
        if self._released:
            return
        self._released = True
        self._forget(self)
        self._record("release", self._rank, {"export": self.id, "gpu": self._rank})
        self._inner.release()
        self._record("free", self._rank, {"export": self.id, "gpu": self._rank, "exports": [self.id]})


def _ignore(name: str, rank: int, data: Mapping[str, Any]) -> None:
    """No trace."""
