"""Broken clients: groups that do not form, tensors that are not those announced, waits that do not end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from conformance.plants.make import broken, method

MODULE = "harness.reference.transports.distributed"
TRANSPORT = f"{MODULE}:DistributedTransport"
TRANSFER = f"{MODULE}:Transfer"
CONTROL = "harness.reference.control:Control"
MAIN = "NVIDIA-NeMo/RL#3612"
FLEET = "NVIDIA-NeMo/RL#3330"


def _names_rotated(original: Any) -> Any:
    """Tensors of one shape and dtype are announced under each other's names."""

    def announcement(named: Any) -> Any:
        alike: dict[Any, list[int]] = {}
        for at, (_, tensor) in enumerate(named):
            alike.setdefault((tensor.shape, tensor.dtype), []).append(at)
        body = original(named)
        names = list(body["names"])
        for places in alike.values():
            for at, other in zip(places, [*places[1:], places[0]], strict=True):
                body["names"][at] = names[other]
        return body

    return announcement


def _every_offset_is_one(original: Any) -> Any:
    def invite(self: Any, group: Any, engines: Any, timeout_s: float) -> Any:
        return [wait for engine in engines for wait in original(self, group, [engine], timeout_s)]

    return invite


def _source_alone(original: Any) -> Any:
    return lambda self, rank: original(self, rank) if rank == 0 else 0


def _frozen(_original: Any) -> Any:
    def pause(self: Any, engines: Any, deadline: Any) -> None:
        from harness.reference.engines import ask

        for engine in engines:
            engine.paused = True
        ask(engines, "pause_generation", {"mode": "in_place"}, deadline.work("pause"))

    return pause


def _nothing(_original: Any) -> Any:
    return lambda self, *rest: None


def _without_end(_original: Any) -> Any:
    def broadcast(self: Any, waits: Any, tensors: Any, deadline: Any, timeout_s: float) -> None:
        self._group.wait([self._group.broadcast(tensor) for tensor in tensors])
        self._settle("transfer", waits, deadline, done=True)

    return broadcast


def _broadcast_first(_original: Any) -> Any:
    def post(self: Any, parcel: Any) -> None:
        import numpy as np

        from harness.reference.transports import distributed

        timeout_s, group = self.deadline.work("transfer"), self.transport._group
        sent = [group.broadcast(np.ascontiguousarray(tensor)) for _, tensor in parcel.named]
        body = distributed.announcement(parcel.named)
        if parcel.last:
            body["weight_version"] = self.version
        waits = [(e, e.endpoint.start(distributed.UPDATE, body, timeout_s=timeout_s)) for e in self.engines]
        group.wait(sent, timeout_s)
        self.transport._settle("transfer", waits, self.deadline, done=True)
        for engine in self.engines:
            engine.touched, engine.complete = True, parcel.last

    return post


def _as_it_lies(original: Any) -> Any:
    """Every tensor is sent as the export gave it."""

    def post(self: Any, parcel: Any) -> None:
        from unittest import mock

        import numpy as np

        with mock.patch.object(np, "ascontiguousarray", lambda array: array):
            original(self, parcel)

    return post


def _released_on_success(_original: Any) -> Any:
    @contextmanager
    def held(lock: Any, owner: str, clock: Any, deadline: Any) -> Iterator[None]:
        while not lock.try_acquire(owner, deadline.last()):
            deadline.work("lock")
            clock.sleep(0.05)
        yield
        lock.release(owner)

    return held


def _ready_at_once(original: Any) -> Any:
    def connect(self: Any, deadline: Any) -> None:
        self.markers.group_ready(self.transport.world_size(self._engines), [e.name for e in self._engines])
        original(self, deadline)

    return connect


PLANTS = (
    broken(
        "names-among-equals-rotated",
        "COLL-1",
        "NovaSky-AI/SkyRL#1816",
        "tensors of one shape are announced in another order than they are broadcast",
        method(f"{MODULE}:announcement", _names_rotated),
    ),
    broken(
        "name-used-again",
        "COLL-2",
        f"vllm-project/vllm#40646, vllm-project/vime#329, {FLEET}, D55",
        "a group is joined under a name that is still there",
        method(f"{TRANSPORT}._destroy", _nothing),
    ),
    broken(
        "every-offset-is-one",
        "COLL-3",
        "vllm-project/vime#329",
        "every engine joins as rank 1",
        method(f"{TRANSPORT}._invite", _every_offset_is_one),
        method(f"{TRANSPORT}.world_size", lambda _original: lambda self, engines: 1 + len(engines) * 2 + 1),
    ),
    broken(
        "split-from-the-default-group",
        "COLL-4",
        "NVIDIA-NeMo/RL#3189, D44",
        "the group is made while the default group is bound to a device",
        method(f"{MODULE}:unbound", lambda _original: lambda default: nullcontext()),
    ),
    broken(
        "only-the-source-walks",
        "COLL-5",
        "RLinf/RLinf#1540, huggingface/trl#7103, radixark/miles#1730, D28 D59",
        "trainer ranks that broadcast nothing leave at once",
        method(f"{TRANSFER}._rank", _source_alone),
    ),
    broken(
        "broadcast-to-frozen-engines",
        "COLL-6",
        "sgl-project/sglang#22623",
        "engines are frozen in place, with requests under way",
        method(f"{CONTROL}.pause", _frozen),
        method(f"{CONTROL}.flush", _nothing),
    ),
    broken(
        "broadcast-without-a-deadline",
        "COLL-7",
        f"{FLEET}, D38 D54",
        "a broadcast is waited for without end",
        method(f"{TRANSPORT}.broadcast", _without_end),
    ),
    broken(
        "broadcast-before-announcing",
        "COLL-8",
        "a trainer that broadcasts first waits for ever when the update is refused",
        "tensors are broadcast before the engines are told of them",
        method(f"{TRANSFER}._post", _broadcast_first),
    ),
    broken(
        "waits-out-the-deadline",
        "COLL-9",
        f"{FLEET}, D53",
        "a refusal is heard of when everybody's time is over",
        method(f"{MODULE}:any_refused", lambda _original: lambda waits: False),
    ),
    broken(
        "memory-as-it-lies",
        "COLL-10",
        f"{MAIN}, D42",
        "strided views are broadcast",
        method(f"{TRANSFER}._post", _as_it_lies),
    ),
    broken(
        "lock-kept-after-a-failure",
        "COLL-11",
        "radixark/miles#1967, D50",
        "a refit that fails does not give the lock back",
        method(f"{MODULE}:held", _released_on_success),
    ),
    broken(
        "cumem-never-chosen",
        "COLL-12",
        f"{MAIN}, D47 D49",
        "the trainer's NCCL allocates in another way than the engines'",
        method(f"{MODULE}:choose_cumem", lambda _original: lambda env: None),
    ),
    broken(
        "ready-before-they-confirm",
        "COLL-13",
        f"{FLEET}, D56",
        "the marker is written before the engines have joined",
        method("harness.reference.refit:RefitClient._connect", _ready_at_once),
    ),
    broken(
        "group-left-on-the-engines",
        "COLL-14",
        f"{MAIN}, D35",
        "a client that closes leaves its group behind",
        method(f"{TRANSPORT}.close", _nothing),
    ),
)
