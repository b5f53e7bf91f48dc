"""A checkpoint engine's update over IPC: trainer ranks beside the engine's ranks, each with a buffer on the shared GPU.

One call of `/update_weights_from_ipc` lasts for the whole transfer. It names, by device id, the socket at which each
rank's worker finds its trainer rank; from then on the two speak alone (checkpoint_engine/ps.py:723@0.4.2). The buffer
has two halves: one is filled while the other may be read, and a half is filled again when the worker has answered for
what was in it. There is no session: the worker finalises at its end, and `end` would do so a second time.

The engine's answer is rank 0's. A barrier makes it wait for all ranks (managers/scheduler_components/
weight_updater.py:286@0.5.23), but what another rank met only its own trainer rank hears.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from harness.reference.buckets import Named, Parcel, parcels
from harness.reference.deadline import Deadline
from harness.reference.engines import Engine, Waits, Weights, answered, raise_failed
from harness.reference.errors import StreamFailed
from harness.reference.transports.lockstep import agree, next_parcel

PHASE = "transfer"
UPDATE = "update_weights_from_ipc"
ALIGN = 256
"""Every tensor of a buffer begins at a multiple of it."""


class Line(Protocol):
    """One trainer rank's line to one engine rank's worker (`fakes.trainer.worker_line`)."""

    address: str
    uuid: str

    def offer(self, names: Sequence[str]) -> None: ...  # noqa: D102 - fakes.trainer.worker_line says it

    def fill(self, offset: int, named: Named) -> list[dict[str, Any]]: ...  # noqa: D102

    def tell(self, metas: Sequence[Mapping[str, Any]]) -> None: ...  # noqa: D102

    def end(self) -> None: ...  # noqa: D102

    def stop(self, why: str) -> bool: ...  # noqa: D102

    @property
    def answered(self) -> bool: ...  # noqa: D102

    def reply(self) -> str: ...  # noqa: D102

    def free(self) -> None: ...  # noqa: D102


class Trainer(Protocol):
    """The part of the trainer kit that this transport uses. Collectives raise TimeoutError."""

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

    def until(self, ready: Callable[[], bool], timeout_s: float, what: str) -> bool:
        """Wait until `ready()`, or for so long; whether it came true."""
        ...

    def worker_line(self, rank: int, address: str, nbytes: int, consumers: tuple[tuple[str, int], ...]) -> Line:
        """A line of `rank`, bound, with a buffer of its own."""
        ...


class IpcTransport:
    """`Transport` of parameter servers for colocated engines: nothing lasts from one refit to the next."""

    name = "ipc"

    def __init__(self, trainer: Trainer, bucket_bytes: int) -> None:
        self.trainer = trainer
        self.bucket_bytes = bucket_bytes
        self._refits = 0

    def world_size(self, engines: Sequence[Engine]) -> int:
        """One trainer rank on the GPU of every engine rank."""
        return sum(len(e.ranks) for e in engines)

    def connect(self, engines: Sequence[Engine], deadline: Deadline) -> bool:
        """There is nothing to connect."""
        return False

    def send(self, engines: Sequence[Engine], deadline: Deadline, state: Mapping[str, Any], version: str) -> int:
        """Everything in one call per engine. Sockets of an earlier refit are never used again: who was told of them
        and did not come may come yet."""
        self._refits += 1
        transfer = IpcTransfer(self, engines, deadline, state, self._refits)
        try:
            return transfer.run(version)
        finally:
            transfer.close()

    def confirm(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """Every worker has answered for all that it was sent."""

    def close(self, engines: Sequence[Engine]) -> None:
        """Every buffer was given back by its refit."""


class IpcTransfer:
    """One state on its way: all trainer ranks in lock step, the engines' calls under way beside them."""

    def __init__(
        self, transport: IpcTransport, engines: Sequence[Engine], deadline: Deadline, state: Mapping[str, Any], nth: int
    ) -> None:
        self.trainer = transport.trainer
        self.bucket_bytes = transport.bucket_bytes
        self.engines = engines
        self.deadline = deadline
        self.state = state
        largest = max(int(array.nbytes) for array in state.values())
        self.half = -(-(max(self.bucket_bytes, largest) + ALIGN * len(state)) // ALIGN) * ALIGN
        self.lines: dict[int, Line] = {}
        self.waits: dict[int, Callable[[], Any]] = {}
        for e in engines:
            for tp_rank, rank in enumerate(e.ranks):
                address = f"ipc://@refit-{nth}-{e.name}-{tp_rank}.sock"
                self.lines[rank] = self.trainer.worker_line(rank, address, 2 * self.half, ((e.name, tp_rank),))

    def run(self, version: str) -> int:
        """Tell the engines where to come, send everything, hear what they say of it. Returns the number of calls."""
        timeout_s = self.deadline.work(PHASE)
        waits: Waits = []
        for e in self.engines:
            e.touched, e.weights = True, Weights.TORN
            handles = {self.lines[rank].uuid: self.lines[rank].address for rank in e.ranks}
            body = {"zmq_handles": handles, "weight_version": version, "flush_cache": False}
            wait = e.endpoint.start(UPDATE, body, timeout_s=timeout_s)
            waits.append((e, wait))
            self.waits |= dict.fromkeys(e.ranks, wait)
        results = self.trainer.run(self._rank, self.deadline.meeting(PHASE, share=0.5))
        answers = answered(waits)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            if not isinstance(error, StreamFailed):
                raise error
        raise_failed(PHASE, answers)
        if errors:
            raise errors[0]
        for e in self.engines:
            e.complete = True
        return 1

    def close(self) -> None:
        """The buffers may be used again: no worker reads any more, or none that could be told so."""
        for line in self.lines.values():
            line.free()

    # -- one rank -------------------------------------------------------------------------------------------------

    def _rank(self, rank: int) -> int:
        """A rank without an engine walks the export with the others, and learns what they meet."""
        line = self.lines.get(rank)
        stream = parcels(self.trainer.stream(rank, self.state, self._meeting()), self.bucket_bytes)
        names: set[str] = set()
        try:
            self._together(rank, line, lambda there: there.offer(list(self.state)))
            sent = 0
            while (parcel := self._next(rank, stream, names)) is not None:
                self._together(rank, line, self._telling(parcel.named, sent))
                sent += 1
            self._together(rank, line, lambda there: there.end())
            if line is not None:
                line.free()
            self._together(rank, line, lambda there: there.end())
        except BaseException as error:
            if line is not None:
                line.stop(f"{type(error).__name__}: {error}")
            raise
        return 0

    def _telling(self, named: Named, sent: int) -> Callable[[Line], None]:
        """The halves take turns: the other one was answered for by all ranks before this one is touched."""
        return lambda line: line.tell(line.fill(sent % 2 * self.half, named))

    def _next(self, rank: int, stream: Iterator[Parcel], names: set[str]) -> Parcel | None:
        parcel: Parcel | None = None
        error: BaseException | None = None
        try:
            parcel = next_parcel(stream, names, self.state, PHASE)
        except BaseException as e:
            error = e
        agree(self.trainer, rank, error, self._meeting)
        return parcel

    def _together(self, rank: int, line: Line | None, say: Callable[[Line], None]) -> None:
        """One message of every rank and its answer; raises on every rank what any rank met."""
        error: BaseException | None = None
        try:
            if line is not None:
                say(line)
                self._hear(rank, line)
        except BaseException as e:
            error = e
        agree(self.trainer, rank, error, self._meeting)

    def _hear(self, rank: int, line: Line) -> None:
        """The worker's answer. One whose engine has ended the call will not give any."""
        ended = self.waits[rank]
        what = f"the worker at {line.address}"
        if not self.trainer.until(
            lambda: line.answered or getattr(ended, "done", False), self._meeting(), f"an answer of {what}"
        ):
            raise StreamFailed(f"{PHASE}: {what} did not answer in time")
        if not line.answered:
            raise StreamFailed(f"{PHASE}: {what} never answered, and the engine has ended the call")
        answer = line.reply()
        if answer:
            raise StreamFailed(f"{PHASE}: {what} failed: {answer.strip().splitlines()[-1]}")

    def _meeting(self) -> float:
        return self.deadline.meeting(PHASE)
