"""Disaggregated path: trainer rank 0 and every engine rank are one process group, and rank 0 broadcasts each tensor.

The group outlives a refit as long as the same incarnations of the same engines are there. It is made of calls that
block: an engine that joins or receives does nothing else until its peers have come. So every wait here has the refit's
deadline, and ends early when an engine has said no; then the group is ended on all sides, which lets go of whoever is
still waiting, and only then are the answers collected. A group in which anything failed is out of step for good: the
next refit makes another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Protocol

import numpy as np

from harness.reference.buckets import Named, Parcel, parcels
from harness.reference.deadline import Deadline
from harness.reference.engines import Answers, Engine, Waits, Weights, answered, any_refused, ask, raise_failed
from harness.reference.errors import GroupFailed
from harness.reference.lease import Lock, held
from harness.reference.transports.lockstep import agree, next_parcel
from harness.reference.transports.side_group import choose_cumem, unbound
from harness.sut.protocol import ClockLike

CONNECT, PHASE = "connect", "transfer"
GROUP = "weight_update_group"
"""Always the same name, SGLang's default: what a trainer that died left behind can be found and destroyed."""

OWNER = "refitcheck-reference"
INIT, DESTROY, UPDATE = "init_weights_update_group", "destroy_weights_update_group", "update_weights_from_distributed"
NO_GROUP = "does not exist"
FAREWELL_S = 5.0
LET_IN_S = 1.0


class UpdateGroup(Protocol):
    """One group as its rank 0 has it (`fakes.transport.groups`). Timeouts raise TimeoutError and name who was missing.

    `join` and `wait` give False when `unless()` came true before they were over.
    """

    address: str
    port: int
    backend: str

    def join(self, timeout_s: float | None = None, *, unless: Callable[[], bool] = ...) -> bool:
        """Wait for every rank."""
        ...

    def broadcast(self, array: np.ndarray[Any, Any]) -> Any:
        """Post one broadcast."""
        ...

    def wait(self, sent: Iterable[Any], timeout_s: float | None = None, *, unless: Callable[[], bool] = ...) -> bool:
        """Wait for broadcasts."""
        ...

    def close(self) -> None:
        """Abort and destroy this side."""
        ...


class Groups(Protocol):
    """Where groups come from; `default` is the trainer's own process group, `env` its environment."""

    default: Any
    env: MutableMapping[str, str]

    def open(self, name: str, world_size: int) -> UpdateGroup:
        """A store at a free port, and rank 0 of the group that will meet there."""
        ...


class Trainer(Protocol):
    """The part of the trainer kit that this transport uses (`fakes.trainer`). Collectives raise TimeoutError."""

    groups: Groups
    lock: Lock

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


class DistributedTransport:
    """`Transport` over a group of trainer rank 0 and all ranks of all engines."""

    name = "distributed"

    def __init__(self, trainer: Trainer, clock: ClockLike, bucket_bytes: int) -> None:
        self.trainer = trainer
        self.clock = clock
        self.bucket_bytes = bucket_bytes
        choose_cumem(trainer.groups.env)
        self._group: UpdateGroup | None = None
        self._layout: tuple[tuple[str, int], ...] = ()

    def world_size(self, engines: Sequence[Engine]) -> int:
        """The trainer's rank 0, and every rank of every engine."""
        return 1 + sum(e.endpoint.tp for e in engines)

    # -- the group ------------------------------------------------------------------------------------------------

    def connect(self, engines: Sequence[Engine], deadline: Deadline) -> bool:
        """A group of exactly these incarnations. What was there for others, or of an earlier trainer, is destroyed."""
        layout = tuple((e.name, e.incarnation) for e in engines)
        if self._group is not None and layout == self._layout:
            return False
        self._abandon()
        self._destroy(engines, deadline)
        self._init(engines, deadline)
        self._layout = layout
        return True

    def _destroy(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        answers = ask(engines, DESTROY, {"group_name": GROUP}, deadline.work(CONNECT))
        raise_failed(CONNECT, [(e, o) for e, o in answers if not (o.status == 400 and NO_GROUP in o.text)])

    def _init(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """Rank 0 listens first; then the engines are told to come, all at once, since each of them blocks."""
        timeout_s = deadline.work(CONNECT)
        with unbound(self.trainer.groups.default):
            group = self._group = self.trainer.groups.open(GROUP, self.world_size(engines))
            waits = self._invite(group, engines, timeout_s)
            try:
                joined = group.join(timeout_s, unless=lambda: any_refused(waits))
            except BaseException as error:
                self._let_in(waits, deadline)
                raise self._failed(CONNECT, waits, deadline, error) from error
        if not joined:
            self._let_in(waits, deadline)
        self._settle(CONNECT, waits, deadline, done=joined)

    def _let_in(self, waits: Waits, deadline: Deadline) -> None:
        """Keep listening until whoever was told to come has had the time to connect.

        One that finds nobody listening knocks for half an hour, and does nothing else meanwhile; one that is inside
        hears it when the store is closed.
        """
        until = self.clock.now() + min(LET_IN_S, max(deadline.last(), 0.0) / 2)
        while self.clock.now() < until and not all(getattr(wait, "done", False) for _, wait in waits):
            self.clock.sleep(LET_IN_S / 10)

    def _invite(self, group: UpdateGroup, engines: Sequence[Engine], timeout_s: float) -> Waits:
        waits: Waits = []
        offset = 1
        for e in engines:
            body = {
                "master_address": group.address,
                "master_port": group.port,
                "rank_offset": offset,
                "world_size": self.world_size(engines),
                "group_name": GROUP,
                "backend": group.backend,
            }
            waits.append((e, e.endpoint.start(INIT, body, timeout_s=timeout_s)))
            offset += e.endpoint.tp
        return waits

    def _settle(self, phase: str, waits: Waits, deadline: Deadline, *, done: bool) -> None:
        """Collect the answers. CallFailed for what an engine did not say yes to; the group is over then."""
        answers = answered(waits) if done else self._parted(waits, deadline)
        if done and not all(outcome.ok for _, outcome in answers):
            self._parted([], deadline, [e for e, _ in waits])
        raise_failed(phase, answers)

    def _failed(self, phase: str, waits: Waits, deadline: Deadline, error: BaseException) -> BaseException:
        """What is raised for an error of the group: an engine's refusal, if there was one, is its cause."""
        answers = self._parted(waits, deadline)
        try:
            raise_failed(phase, answers)
        except Exception as refused:
            refused.add_note(f"{type(error).__name__}: {error}")
            return refused
        return GroupFailed(f"{phase}: {error}") if isinstance(error, Exception) else error

    def _parted(self, waits: Waits, deadline: Deadline, engines: Sequence[Engine] = ()) -> Answers:
        """End the group on every side, then collect what is outstanding.

        Closing the trainer's side alone does not do it: in a gloo tree an engine rank may wait for a rank of another
        engine, which has refused and knows of nothing. So every engine is told to destroy, and whoever waits for it is
        let go of.
        """
        self._abandon()
        timeout_s = min(FAREWELL_S, max(deadline.last() / 2, 0.1))
        told = [e for e in engines or [e for e, _ in waits] if not e.lost]
        farewells = [(e, e.endpoint.start(DESTROY, {"group_name": GROUP}, timeout_s=timeout_s)) for e in told]
        answers = answered(waits)
        answered(farewells)
        return answers

    def _abandon(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.close()

    def confirm(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """The answers were those of all ranks."""

    def close(self, engines: Sequence[Engine]) -> None:
        """The trainer's side first, so that no engine waits for it; then theirs."""
        members = dict(self._layout)
        had, self._layout = self._group is not None, ()
        self._abandon()
        mine = [e for e in engines if members.get(e.name) == e.incarnation]
        if had and mine:
            ask(mine, DESTROY, {"group_name": GROUP}, FAREWELL_S)

    # -- sending --------------------------------------------------------------------------------------------------

    def send(self, engines: Sequence[Engine], deadline: Deadline, state: Mapping[str, Any], version: str) -> int:
        """One transfer of one whole state to all `engines`, in lock step of all trainer ranks."""
        transfer = Transfer(self, engines, deadline, state, version)
        with held(self.trainer.lock, OWNER, self.clock, deadline):
            try:
                return transfer.run()
            except BaseException:
                self._abandon()
                raise

    def broadcast(
        self, waits: Waits, tensors: Sequence[np.ndarray[Any, Any]], deadline: Deadline, timeout_s: float
    ) -> None:
        """The tensors of one update, to engines that have been told of them. CallFailed, or GroupFailed."""
        group = self._group
        if group is None:
            raise GroupFailed(f"{PHASE}: there is no group")
        try:
            sent = [group.broadcast(tensor) for tensor in tensors]
            going = group.wait(sent, timeout_s, unless=lambda: any_refused(waits))
        except BaseException as error:
            raise self._failed(PHASE, waits, deadline, error) from error
        self._settle(PHASE, waits, deadline, done=going)


class Transfer:
    """One state on its way. Every trainer rank walks the export, rank 0 announces and broadcasts."""

    def __init__(
        self,
        transport: DistributedTransport,
        engines: Sequence[Engine],
        deadline: Deadline,
        state: Mapping[str, Any],
        version: str,
    ) -> None:
        self.transport = transport
        self.trainer = transport.trainer
        self.engines = engines
        self.deadline = deadline
        self.state = state
        self.version = version

    def run(self) -> int:
        """Send everything; returns the number of update calls per engine. The first error of any rank is raised."""
        calls = 0
        for result in self.trainer.run(self._rank, self.deadline.meeting(PHASE, share=0.5)):
            if isinstance(result, BaseException):
                raise result
            calls = max(calls, result)
        return calls

    def _rank(self, rank: int) -> int:
        meeting = self.deadline.meeting(PHASE)
        stream = parcels(self.trainer.stream(rank, self.state, meeting), self.transport.bucket_bytes)
        names: set[str] = set()
        calls = 0
        while self._step(rank, stream, names):
            calls += 1
        return calls

    def _step(self, rank: int, stream: Iterator[Parcel], names: set[str]) -> bool:
        """One parcel on one rank; False after the last. Raises on every rank what any rank met."""
        parcel: Parcel | None = None
        error: BaseException | None = None
        try:
            parcel = next_parcel(stream, names, self.state, PHASE)
            if rank == 0 and parcel is not None:
                self._post(parcel)
        except BaseException as e:
            error = e
        agree(self.trainer, rank, error, lambda: self.deadline.meeting(PHASE))
        return parcel is not None

    def _post(self, parcel: Parcel) -> None:
        """One update call to every engine, then the broadcasts that they wait for. Never repeated.

        The tensors sent are contiguous: gloo sends a strided one as its memory lies, and the engine would not know.
        They are held here until the group was waited for. The label travels with the last call only, and no call
        flushes: see `TensorTransfer._post`.
        """
        tensors = [np.ascontiguousarray(tensor) for _, tensor in parcel.named]
        body = announcement(parcel.named)
        if parcel.last:
            body["weight_version"] = self.version
        timeout_s = self.deadline.work(PHASE)
        for e in self.engines:
            e.touched, e.weights = True, Weights.TORN
        waits: Waits = [(e, e.endpoint.start(UPDATE, body, timeout_s=timeout_s)) for e in self.engines]
        self.transport.broadcast(waits, tensors, self.deadline, timeout_s)
        for e in self.engines:
            e.complete = parcel.last


def announcement(named: Named) -> dict[str, Any]:
    """What an engine is told of the tensors that will come, in their order: dtypes without `torch.`."""
    return {
        "names": [name for name, _ in named],
        "dtypes": [str(tensor.dtype) for _, tensor in named],
        "shapes": [list(tensor.shape) for _, tensor in named],
        "group_name": GROUP,
        "flush_cache": False,
    }
