"""Disk path: trainer rank 0 writes the state into a folder that engines share, and every engine loads it from there.

Ranks read in their own time, and may read again what failed: so a folder is whole before anybody is told of it, is
never written to again, and is removed when every rank has read it. Rank 0's answer speaks for rank 0, and no barrier
makes it wait for the others (managers/scheduler_components/weight_updater.py:138@0.5.23): an engine of several ranks is
asked for one token when it runs again, which takes them all. A folder whose reader did not answer is kept until that
engine has loaded a later one, or has been replaced, or the client closes. There is no session: SGLang finalises a disk
update itself, and `end` would do so a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from harness.reference.buckets import Parcel, parcels
from harness.reference.deadline import Deadline
from harness.reference.engines import Answers, Engine, Weights, ask, raise_failed
from harness.reference.transports.lockstep import agree, next_parcel

PHASE = "transfer"
CONFIRM = "confirm"
UPDATE = "update_weights_from_disk"
ONE_TOKEN = {"input_ids": [0], "sampling_params": {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True}}
Reader = tuple[str, int]
"""An engine's name and incarnation."""


class Folder(Protocol):
    """One folder on the shared disk (`fakes.trainer.disk`)."""

    path: Any

    def write(self, named: Sequence[tuple[str, np.ndarray[Any, Any]]]) -> None:
        """One more file."""
        ...

    def publish(self) -> Any:
        """From now on it is there, whole."""
        ...

    def remove(self) -> None:
        """It is gone."""
        ...


class Disk(Protocol):
    """The shared disk."""

    def create(self, name: str) -> Folder:
        """A new folder that nobody sees yet."""
        ...


class Trainer(Protocol):
    """The part of the trainer kit that this transport uses. Collectives raise TimeoutError."""

    disk: Disk

    def run(self, fn: Callable[[int], int], timeout_s: float) -> Sequence[int | BaseException]:
        """`fn(rank)` on every rank's thread; their results or errors by rank."""
        ...

    def stream(
        self, rank: int, state: Mapping[str, Any], timeout_s: float
    ) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """The rank's export in HF names and full shapes; every tensor is a collective of all ranks."""
        ...

    def all_gather(self, rank: int, value: Any, timeout_s: float) -> Sequence[Any]:
        """Every rank's value, on every rank."""
        ...


class DiskTransport:
    """`Transport` over a shared file system."""

    name = "disk"

    def __init__(self, trainer: Trainer, bucket_bytes: int) -> None:
        self.trainer = trainer
        self.bucket_bytes = bucket_bytes
        self._refits = 0
        self._kept: list[tuple[Folder, set[Reader]]] = []

    def world_size(self, engines: Sequence[Engine]) -> int:
        """Engines that read."""
        return len(engines)

    def connect(self, engines: Sequence[Engine], deadline: Deadline) -> bool:
        """There is nothing to connect."""
        return False

    def send(self, engines: Sequence[Engine], deadline: Deadline, state: Mapping[str, Any], version: str) -> int:
        """Write, tell, wait for all, clean up. Returns 1, the number of update calls per engine."""
        self._refits += 1
        folder = self.trainer.disk.create(f"refit-{self._refits}")
        readers: set[Reader] = set()
        self._kept.append((folder, readers))
        self._write(folder, deadline, state)
        path = folder.publish()
        body = {"model_path": str(path), "weight_version": version, "flush_cache": False}
        timeout_s = deadline.work(PHASE)
        for e in engines:
            e.touched, e.weights = True, Weights.TORN
            readers.add((e.name, e.incarnation))
        answers = ask(engines, UPDATE, body, timeout_s)
        for e, outcome in answers:
            e.complete = outcome.ok
            if outcome.ending == "reply" and _alone(e):
                readers.discard((e.name, e.incarnation))
        self._forget(engines, [(e, outcome) for e, outcome in answers if _alone(e) or outcome.ending == "refused"])
        raise_failed(PHASE, answers)
        return 1

    def confirm(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """One token of every engine whose other ranks may still be reading."""
        waited = {reader for _, readers in self._kept for reader in readers}
        asked = [e for e in engines if (e.name, e.incarnation) in waited]
        if not asked:
            return
        answers = ask(asked, "generate", ONE_TOKEN, deadline.giving_back(CONFIRM))
        self._forget(engines, answers)
        raise_failed(CONFIRM, answers)

    def close(self, engines: Sequence[Engine]) -> None:
        """Nobody is waited for any more."""
        kept, self._kept = self._kept, []
        for folder, _ in kept:
            folder.remove()

    def _forget(self, engines: Sequence[Engine], answers: Answers) -> None:
        """Remove what nobody reads: not who has done with the latest folder, nor an incarnation that is gone."""
        current = {e.name: e.incarnation for e in engines}
        done = {(e.name, e.incarnation) for e, outcome in answers if outcome.ok or outcome.ending == "refused"}
        still: list[tuple[Folder, set[Reader]]] = []
        for folder, readers in self._kept:
            readers -= done | {(name, number) for name, number in readers if current.get(name, number) != number}
            if readers:
                still.append((folder, readers))
            else:
                folder.remove()
        self._kept = still

    def _write(self, folder: Folder, deadline: Deadline, state: Mapping[str, Any]) -> None:
        """Every trainer rank walks the export, rank 0 writes it, a file per bucket. The first error is raised."""

        def rank_writes(rank: int) -> int:
            stream = parcels(self.trainer.stream(rank, state, deadline.meeting(PHASE)), self.bucket_bytes)
            names: set[str] = set()
            while self._step(rank, folder, stream, names, state, deadline):
                pass
            return 0

        for result in self.trainer.run(rank_writes, deadline.meeting(PHASE, share=0.5)):
            if isinstance(result, BaseException):
                raise result

    def _step(
        self,
        rank: int,
        folder: Folder,
        stream: Iterator[Parcel],
        names: set[str],
        state: Mapping[str, Any],
        deadline: Deadline,
    ) -> bool:
        parcel: Parcel | None = None
        error: BaseException | None = None
        try:
            parcel = next_parcel(stream, names, state, PHASE)
            if rank == 0 and parcel is not None:
                folder.write(parcel.named)
        except BaseException as e:
            error = e
        agree(self.trainer, rank, error, lambda: deadline.meeting(PHASE))
        return parcel is not None


def _alone(e: Engine) -> bool:
    """Whether rank 0 is all there is."""
    return len(e.ranks) == 1
