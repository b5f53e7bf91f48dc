"""Broken clients of the checkpoint engine: buffers used too early, receivers kept too long, streams trusted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.plants.make import broken, method

ENGINE = "harness.reference.transports.checkpoint_engine"
TRANSPORT = f"{ENGINE}:CheckpointEngineTransport"
TRANSFER = f"{ENGINE}:Transfer"
ALIGNING = "harness.reference.transports.aligning"
NIXL = "NVIDIA-NeMo/RL#3519"


def _everything_first(original: Any) -> Any:
    """All groups are collected, then posted: most of them lie in buffers that were used again."""
    return lambda streams, wait: iter(list(original(streams, wait)))


def _for_ever(original: Any) -> Any:
    def connect(self: Any, engines: Any, deadline: Any) -> bool:
        return False if self.senders else bool(original(self, engines, deadline))

    return connect


def _half_a_buffer(original: Any) -> Any:
    def receiver(self: Any, e: Any, tp_rank: int) -> Any:
        whole, self.bucket_bytes = self.bucket_bytes, self.bucket_bytes // 2
        try:
            return original(self, e, tp_rank)
        finally:
            self.bucket_bytes = whole

    return receiver


def _connect_when_paused(_original: Any) -> Any:
    """Agents are made when the first byte is sent."""
    return lambda self, engines, deadline: False


def _connect_and_send(original: Any) -> Any:
    def send(self: Any, engines: Any, deadline: Any, state: Any, version: str) -> Any:
        _CONNECT[0](self, engines, deadline)
        return original(self, engines, deadline, state, version)

    return send


_CONNECT: list[Any] = []


def _kept(original: Any) -> Any:
    _CONNECT[:] = [original]
    return _connect_when_paused(original)


def _nothing(_original: Any) -> Any:
    return lambda self, *rest: None


def _batch_by_batch(_original: Any) -> Any:
    """The k-th batch of every rank is taken for the same tensors; what a longer one has more goes with the last."""

    def aligned(streams: Any, wait: Any) -> Iterator[Any]:
        from harness.reference.transports.aligning import Group

        last = False
        while not last:
            batches: list[Any] = []
            for stream in streams:
                batch = None
                while batch is None:
                    wait(stream.news, "a bucket")
                    batch = stream.take()
                batches.append(batch)
            last = any(b.last for b in batches)
            yield Group(tuple(b.named for b in batches), last=last)

    return aligned


def _unchecked(_original: Any) -> Any:
    return lambda self, names: None


def _nothing_is_fine(original: Any) -> Any:
    return lambda self, names: original(self, names) if names else None


def _shortest(original: Any) -> Any:
    """Streams are compared with nothing: a rank's own names are as good as another's."""
    return lambda *args: None


def _sizes_first(original: Any) -> Any:
    """The whole export is gathered to learn its sizes."""

    def give(self: Any, rank: int) -> Any:
        list(self.trainer.stream(rank, self.state, self.deadline.meeting("transfer")))
        return original(self, rank)

    return give


PLANTS = (
    broken(
        "groups-collected-first",
        "IPC-71",
        f"{NIXL}, D65",
        "what was received is posted when everything has been received",
        method(f"{ENGINE}:aligned", _everything_first),
    ),
    broken(
        "receivers-kept-for-ever",
        "IPC-72",
        "NVIDIA-NeMo/RL#3944, D73",
        "receivers and peers of an engine that came back are those of its last incarnation",
        method(f"{TRANSPORT}.connect", _for_ever),
    ),
    broken(
        "buffers-of-two-sizes",
        "IPC-73",
        f"{NIXL}, D77",
        "receivers compute a bucket size of their own",
        method(f"{TRANSPORT}._receiver", _half_a_buffer),
    ),
    broken(
        "connected-when-all-are-paused",
        "IPC-74",
        f"{NIXL}, D80",
        "that no backend comes up is found out in the middle of the refit",
        method(f"{TRANSPORT}.connect", _kept),
        method(f"{TRANSPORT}.send", _connect_and_send),
    ),
    broken(
        "registered-after-the-close",
        "IPC-75",
        "NVIDIA-NeMo/RL#3944",
        "a client that closes leaves its memory registered",
        method(f"{TRANSPORT}.close", _nothing),
    ),
    broken(
        "batch-by-batch",
        "RANK-71",
        f"{NIXL}, D64",
        "ranks are put side by side by the number of their batch",
        method(f"{ENGINE}:aligned", _batch_by_batch),
    ),
    broken(
        "receivers-on-physical-devices",
        "RANK-72",
        f"{NIXL}, THUDM/slime#1326, D67",
        "a device is named by its physical number",
        method(f"{ENGINE}:local_index", lambda _original: lambda gpu, sees: gpu),
    ),
    broken(
        "nothing-received-is-a-success",
        "NAME-72",
        f"{NIXL}, D63",
        "streams without a tensor are a refit, and its version is reported",
        method(f"{TRANSFER}._complete", _nothing_is_fine),
    ),
    broken(
        "streams-trusted",
        "NAME-73",
        f"{NIXL}, D78",
        "nobody compares what the ranks of an engine receive",
        method(f"{ALIGNING}:_same", _shortest),
        method(f"{ALIGNING}:_all_ended", _shortest),
        method(f"{TRANSFER}._complete", _unchecked),
    ),
    broken(
        "export-walked-for-its-sizes",
        "NAME-74",
        f"{NIXL}, D72",
        "metadata is gathered by walking the whole export before the first bucket",
        method(f"{TRANSFER}._give", _sizes_first),
    ),
)
