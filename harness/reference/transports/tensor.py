"""Colocated tensor path: every trainer rank exports the tensors that lie on its GPU, one rank per engine posts them.

The export walks collectives of all trainer ranks, so every rank takes every step, also a rank without an engine and
also after another rank failed; what one rank learns, all ranks learn before anything is freed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from harness.reference import quantised
from harness.reference.buckets import Named, Parcel, parcels
from harness.reference.deadline import Deadline
from harness.reference.engines import Engine, Weights
from harness.reference.errors import BrokenGather, CallFailed
from harness.reference.quantised import Plan
from harness.reference.transports.lockstep import agree, next_parcel

PHASE = "transfer"


class Export(Protocol):
    """One parcel, exported by one rank for one engine rank. `payload` is base64 text."""

    payload: str

    def release(self) -> None:
        """The producer's storage may be used again."""
        ...


class Trainer(Protocol):
    """The part of the trainer kit that this transport uses (`fakes.trainer`). Collectives raise TimeoutError."""

    ranks: int

    def run(self, fn: Callable[[int], int], timeout_s: float) -> Sequence[int | BaseException]:
        """`fn(rank)` on every rank's thread; their results or errors by rank."""
        ...

    def stream(
        self, rank: int, state: Mapping[str, Any], timeout_s: float
    ) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """The rank's export in HF names and full shapes; every tensor is a collective of all ranks."""
        ...

    def export(self, rank: int, named: Named, consumers: tuple[tuple[str, int], ...]) -> Export:
        """A flattened bucket whose storage stays until it is released."""
        ...

    def gather(self, rank: int, value: Any, *, dst: int, group: tuple[int, ...], timeout_s: float) -> Any:
        """The group's values in the group's order on `dst`, None elsewhere."""
        ...

    def all_gather(self, rank: int, value: Any, timeout_s: float) -> Sequence[Any]:
        """Every rank's value, on every rank."""
        ...

    def live_exports(self) -> int:
        """Exports that nobody has released."""
        ...


@dataclass
class TensorTransfer:
    """One transfer of one whole state to all `engines`, in lock step."""

    trainer: Trainer
    engines: Sequence[Engine]
    deadline: Deadline
    state: Mapping[str, Any]
    version: str
    bucket_bytes: int
    plan: Plan = quantised.NONE

    def run(self) -> int:
        """Send everything; returns the number of update calls per engine. The first error of any rank is raised."""
        calls = 0
        for result in self.trainer.run(self._rank, self.deadline.meeting(PHASE, share=0.5)):
            if isinstance(result, BaseException):
                raise result
            calls = max(calls, result)
        return calls

    def _rank(self, rank: int) -> int:
        engine = next((e for e in self.engines if rank in e.ranks), None)
        stream = self._parcels(self.trainer.stream(rank, self.state, self._meeting()))
        names: set[str] = set()
        calls = 0
        while self._step(rank, engine, stream, names):
            calls += 1
        return calls

    def _parcels(self, named: Iterator[tuple[str, np.ndarray[Any, Any]]]) -> Iterator[Parcel]:
        if self.plan.scheme == quantised.PLAIN:
            return parcels(named, self.bucket_bytes)
        return quantised.parcels(quantised.groups(named, self.plan), self.bucket_bytes)

    def _step(self, rank: int, engine: Engine | None, stream: Iterator[Parcel], names: set[str]) -> bool:
        """One parcel on one rank; False after the last. Raises on every rank what any rank met."""
        parcel: Parcel | None = None
        export: Export | None = None
        error: BaseException | None = None
        try:
            parcel = next_parcel(stream, names, self.plan.names(self.state), PHASE)
            if engine is not None and parcel is not None:
                export = self.trainer.export(rank, parcel.named, ((engine.name, engine.ranks.index(rank)),))
        except BaseException as e:
            error = e
        if engine is not None:
            error = self._deliver(rank, engine, parcel, export, error)
        try:
            agree(self.trainer, rank, error, self._meeting)
        finally:
            if export is not None:
                export.release()
        return parcel is not None

    def _deliver(
        self, rank: int, engine: Engine, parcel: Parcel | None, export: Export | None, error: BaseException | None
    ) -> BaseException | None:
        """Gather over the engine's ranks and post; a rank that failed takes part with its error. Returns the error."""
        try:
            source = engine.ranks[0]
            payload = error or (export.payload if export is not None else None)
            payloads = self.trainer.gather(rank, payload, dst=source, group=engine.ranks, timeout_s=self._meeting())
            if rank == source and parcel is not None:
                self._post(engine, parcel, payloads)
        except BaseException as e:
            return error or e
        return error

    def _post(self, engine: Engine, parcel: Parcel, payloads: Sequence[str | BaseException | None]) -> None:
        """One update call. Never repeated: whether it was applied is unknown unless the engine says so.

        The label travels with the last call only: an engine that carries version N has received all of N. No flush:
        the cache was proven empty under the pause, and a flush that fails kills the engine up to 0.5.21.
        """
        for rank, payload in zip(engine.ranks, payloads, strict=True):
            if isinstance(payload, BaseException):
                raise payload
            if not isinstance(payload, str):
                raise BrokenGather(f"{PHASE}: no payload for {engine.name} from trainer rank {rank}")
        body: dict[str, Any] = {
            "serialized_named_tensors": list(payloads),
            "load_format": "flattened_bucket",
            "flush_cache": False,
        }
        if parcel.last:
            body["weight_version"] = self.version
        timeout_s = self.deadline.work(PHASE)
        engine.touched, engine.weights = True, Weights.TORN
        outcome = engine.endpoint.request("update_weights_from_tensor", body, timeout_s=timeout_s)
        if not outcome.ok:
            raise CallFailed(PHASE, engine.name, outcome)
        engine.complete = parcel.last

    def _meeting(self) -> float:
        return self.deadline.meeting(PHASE)


class TensorTransport:
    """`Transport` for colocated engines: nothing lasts from one refit to the next."""

    name = "tensor"

    def __init__(self, trainer: Trainer, bucket_bytes: int, plan: Plan = quantised.NONE) -> None:
        self.trainer = trainer
        self.bucket_bytes = bucket_bytes
        self.plan = plan

    def world_size(self, engines: Sequence[Engine]) -> int:
        """One trainer rank on the GPU of every engine rank."""
        return sum(len(e.ranks) for e in engines)

    def connect(self, engines: Sequence[Engine], deadline: Deadline) -> bool:
        """There is nothing to connect."""
        return False

    def send(self, engines: Sequence[Engine], deadline: Deadline, state: Mapping[str, Any], version: str) -> int:
        """See `TensorTransfer`."""
        transfer = TensorTransfer(self.trainer, engines, deadline, state, version, self.bucket_bytes, self.plan)
        return transfer.run()

    def confirm(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """The answers were those of all ranks."""

    def close(self, engines: Sequence[Engine]) -> None:
        """Every export was released by its refit."""
