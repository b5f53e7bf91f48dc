"""Checkpoint-engine path: every engine rank has a receiver in a process on its node, fed by a trainer rank of its own.

Streams travel through NIXL agents (`streaming`). On the engine's side they are put side by side (`aligning`), and each
group is exported on the GPUs of the engine's ranks and posted, a call per dtype with one payload per rank. Agents
outlive a refit as long as the same incarnations of the same engines are there: a new incarnation is another process,
and what was registered in the old one is gone. So are all agents after a refit that failed: nobody knows what is still
under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from harness.reference.buckets import Named, by_dtype
from harness.reference.deadline import Deadline
from harness.reference.engines import Engine, Weights
from harness.reference.errors import BadSetup, BadState, CallFailed, StreamFailed
from harness.reference.transports.aligning import aligned
from harness.reference.transports.streaming import BUFFERS, LEAST_BYTES, Agent, Bytes, Receiver, Sender, Side

PHASE = "transfer"


class Export(Protocol):
    """One part of a group, exported on one GPU for one engine rank. `payload` is base64 text."""

    payload: str

    def release(self) -> None:
        """The producer's storage may be used again."""
        ...


class Host(Protocol):
    """A process and the GPUs that it sees, physical numbers in local order."""

    gpus: Sequence[int]

    def empty(self, device: int, nbytes: int) -> Bytes:
        """Device memory. `device` counts from 0 among the GPUs that the process sees."""
        ...

    def gpu(self, device: int) -> int:
        """The physical GPU behind a local index."""
        ...


class Fabric(Protocol):
    """Where agents come from (`fakes.transport.nixl`)."""

    def trainer(self, rank: int) -> Host:
        """The process of a trainer rank."""
        ...

    def beside(self, engine: Any) -> Host:
        """The process that started this incarnation of an engine."""
        ...

    def agent(self, name: str, host: Any) -> Agent:
        """A NIXL agent in a process. Raises where its backend does not come up."""
        ...


class Trainer(Protocol):
    """The part of the trainer kit that this transport uses (`fakes.trainer`). Collectives raise TimeoutError."""

    ranks: int
    fabric: Fabric

    def run(
        self, fn: Callable[[int], int], timeout_s: float, beside: Sequence[Callable[[], int]] = ...
    ) -> Sequence[int | BaseException]:
        """`fn(rank)` on every rank's thread, `beside` in processes of their own; results or errors, those last."""
        ...

    def until(self, ready: Callable[[], bool], timeout_s: float, what: str) -> bool:
        """Wait until `ready()`; whether it came true in time."""
        ...

    def stream(self, rank: int, state: Mapping[str, Any], timeout_s: float) -> Iterator[tuple[str, Bytes]]:
        """The rank's export in HF names and full shapes; every tensor is a collective of all ranks."""
        ...

    def export(self, rank: int, named: Named, consumers: tuple[tuple[str, int], ...]) -> Export:
        """A flattened bucket on GPU `rank`, a copy; its storage stays until it is released."""
        ...

    def record(self, name: str, rank: int, data: Mapping[str, Any]) -> None:
        """What happened, for the trainer's log."""
        ...


class CheckpointEngineTransport:
    """`Transport` over a stream for every engine rank. All buffers, on both sides, have `bucket_bytes`."""

    name = "checkpoint-engine"

    def __init__(self, trainer: Trainer, bucket_bytes: int) -> None:
        self.trainer = trainer
        self.bucket_bytes = bucket_bytes
        self._layout: tuple[tuple[str, int], ...] = ()  # of the agents that are there
        self.senders: dict[int, Sender] = {}
        self.receivers: dict[str, list[Receiver]] = {}

    def world_size(self, engines: Sequence[Engine]) -> int:
        """A sender and a receiver for every engine rank."""
        return 2 * sum(e.endpoint.tp for e in engines)

    # -- agents ---------------------------------------------------------------------------------------------------

    def connect(self, engines: Sequence[Engine], deadline: Deadline) -> bool:
        """Agents for exactly these incarnations; both ends have registered before either hears of the other.

        BadSetup where engine ranks outnumber trainer ranks. StreamFailed where an agent does not come up.
        """
        layout = tuple((e.name, e.incarnation) for e in engines)
        if layout == self._layout:
            return False
        self._abandon()
        needed = sum(e.endpoint.tp for e in engines)
        if self.trainer.ranks < needed:
            raise BadSetup(f"{needed} engine ranks need as many trainer ranks, and there are {self.trainer.ranks}")
        try:
            for e in engines:
                self.receivers[e.name] = [self._receiver(e, rank) for rank in range(e.endpoint.tp)]
            for rank, receiver in enumerate(r for e in engines for r in self.receivers[e.name]):
                sender = self.senders[rank] = self._sender(rank)
                sender.meet(receiver)
                receiver.meet(sender)
        except Exception as error:
            self._abandon()
            notes = "; ".join(getattr(error, "__notes__", ()))
            raise StreamFailed(f"connect: {error}{notes and f' ({notes})'}") from error
        self._layout = layout
        return True

    def _receiver(self, e: Engine, tp_rank: int) -> Receiver:
        """One on the GPU of an engine rank, named as the process there sees it."""
        host = self.trainer.fabric.beside(e.endpoint)
        gpu = (e.endpoint.gpu_ids or tuple(host.gpus))[tp_rank]
        device = local_index(gpu, host.gpus)
        about = {"engine": e.name, "incarnation": e.incarnation, "tp_rank": tp_rank}
        self.trainer.record("receiver", 0, {**about, "device": device, "sees": list(host.gpus)})
        buffers = [host.empty(device, self.bucket_bytes) for _ in range(BUFFERS)]

        agent = self.trainer.fabric.agent(f"{e.name}-{tp_rank}", host)

        def note(bucket: int, names: list[str]) -> None:
            self.trainer.record("batch", 0, {**about, "agent": agent.name, "bucket": bucket, "names": names})

        return Receiver(agent, buffers, host.gpu(device), note)

    def _sender(self, rank: int) -> Sender:
        """Every other rank flushes at three quarters, so that ranks do not all wait at the same time.

        Two such buckets hold what the largest one of another rank does, so nobody who walks the export with that rank
        holds it up for ever.
        """
        host = self.trainer.fabric.trainer(rank)
        buffers = [host.empty(0, self.bucket_bytes) for _ in range(BUFFERS)]
        fill = max(LEAST_BYTES, self.bucket_bytes * (4 - rank % 2) // 4)
        return Sender(self.trainer.fabric.agent(f"trainer-{rank}", host), buffers, fill)

    def _abandon(self) -> None:
        sides: list[Side] = [*self.senders.values(), *(r for some in self.receivers.values() for r in some)]
        self.senders, self.receivers, self._layout = {}, {}, ()
        for side in sides:
            side.close()

    def confirm(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """The answers were those of all ranks."""

    def close(self, engines: Sequence[Engine]) -> None:
        """Nothing stays registered."""
        self._abandon()

    # -- sending --------------------------------------------------------------------------------------------------

    def send(self, engines: Sequence[Engine], deadline: Deadline, state: Mapping[str, Any], version: str) -> int:
        """One transfer of one whole state to all `engines`, each at its own pace."""
        try:
            return Transfer(self, engines, deadline, state, version).run()
        except BaseException:
            self._abandon()
            raise


class Transfer:
    """One state on its way."""

    def __init__(
        self,
        transport: CheckpointEngineTransport,
        engines: Sequence[Engine],
        deadline: Deadline,
        state: Mapping[str, Any],
        version: str,
    ) -> None:
        self.trainer = transport.trainer
        self.senders = transport.senders
        self.receivers = transport.receivers
        self.engines = engines
        self.deadline = deadline
        self.state = state
        self.version = version

    def run(self) -> int:
        """Send everything; returns the most update calls that an engine got. An engine's error is raised first."""
        beside = [partial(self._take, e) for e in self.engines]
        results = list(self.trainer.run(self._give, self.deadline.meeting(PHASE, share=0.5), beside))
        engines, ranks = results[-len(beside) :], results[: -len(beside)]
        for result in (*engines, *ranks):
            if isinstance(result, BaseException):
                raise result
        return max(result for result in engines if isinstance(result, int))

    # -- trainer ranks --------------------------------------------------------------------------------------------

    def _give(self, rank: int) -> int:
        """A rank's stream to its receiver. The export is a collective: a rank that has no receiver, or none any more,
        walks it to its end."""
        stream = self.trainer.stream(rank, self.state, self.deadline.meeting(PHASE))
        sender = self.senders.get(rank)
        try:
            if sender is not None:
                sender.send(stream, self._wait)
        except BaseException as error:
            if sender is not None:
                sender.stop(f"{type(error).__name__}: {error}")
            raise
        finally:
            for _ in stream:
                pass
        return 0

    # -- beside an engine -----------------------------------------------------------------------------------------

    def _take(self, e: Engine) -> int:
        """All streams of one engine, posted group by group. Returns the number of calls."""
        receivers = self.receivers[e.name]
        names: set[str] = set()
        calls = 0
        try:
            for group in aligned(receivers, partial(self._heard, e)):
                names |= {name for name, _ in group.ranks[0]}
                if group.last:
                    self._complete(names)
                parts = list(zip(*(by_dtype(named) for named in group.ranks), strict=True))
                for at, part in enumerate(parts):
                    self._post(e, receivers, part, last=group.last and at == len(parts) - 1)
                    calls += 1
            self._complete(names)
        except BaseException as error:
            for receiver in receivers:
                receiver.stop(f"{type(error).__name__}: {error}")
            raise
        return calls

    def _complete(self, names: set[str]) -> None:
        """Streams that bring nothing are the plainest case: an engine would keep its weights under a new label."""
        if names != set(self.state):
            lacking = sorted(set(self.state) - names) or sorted(names - set(self.state))
            what = "brought no tensor at all" if not names else "are not the state"
            raise BadState(f"{PHASE}: the streams {what}: {', '.join(lacking[:3])} of {len(lacking)}")

    def _post(self, e: Engine, receivers: Sequence[Receiver], part: Sequence[Named], *, last: bool) -> None:
        """One update call, its payloads exported from where each rank received them. See `TensorTransfer._post`."""
        exports: list[Export] = []
        try:
            for tp_rank, (receiver, named) in enumerate(zip(receivers, part, strict=True)):
                exports.append(self.trainer.export(receiver.gpu, named, ((e.name, tp_rank),)))
            body: dict[str, Any] = {
                "serialized_named_tensors": [export.payload for export in exports],
                "load_format": "flattened_bucket",
                "flush_cache": False,
            }
            if last:
                body["weight_version"] = self.version
            timeout_s = self.deadline.work(PHASE)
            e.touched, e.weights = True, Weights.TORN
            outcome = e.endpoint.request("update_weights_from_tensor", body, timeout_s=timeout_s)
        finally:
            for export in exports:
                export.release()
        if not outcome.ok:
            raise CallFailed(PHASE, e.name, outcome)
        e.complete = last

    def _heard(self, e: Engine, ready: Callable[[], bool], what: str) -> None:
        if not self._wait(ready, f"{e.name}: {what}"):
            raise StreamFailed(f"{PHASE}: {e.name}: {what} did not come in time")

    def _wait(self, ready: Callable[[], bool], what: str) -> bool:
        return self.trainer.until(ready, self.deadline.meeting(PHASE), what)


def local_index(gpu: int, sees: Sequence[int]) -> int:
    """The device number of a physical GPU in a process that sees these. BadSetup for one that it does not see."""
    if gpu not in sees:
        raise BadSetup(f"GPU {gpu} is not among those of the process, {list(sees)}")
    return list(sees).index(gpu)
