"""One stream of tensors from one trainer rank to the receiver of one engine rank, through two buffers on either side.

The sender fills a buffer, tells its receiver what lies in it and where, and fills the other one meanwhile. The receiver
reads whole buffers, so both sides have buffers of one size; the read itself tells the sender that it is done. A tensor
larger than what is left of a buffer goes on in the next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import ml_dtypes  # noqa: F401 (numpy knows bfloat16 by name then)
import numpy as np

from harness.reference.errors import StreamFailed
from harness.reference.transports.aligning import Batch

BUFFERS = 2
LEAST_BYTES = 64
Bytes = np.ndarray[Any, Any]
Wait = Callable[[Callable[[], bool], str], bool]
"""(ready, what) -> whether it came true in time."""


class Agent(Protocol):
    """The part of `nixl_agent` that is used (`fakes.transport.nixl`)."""

    name: str

    def register_memory(self, arrays: Sequence[Bytes]) -> Any: ...  # noqa: D102

    def deregister_memory(self, regions: Any) -> None: ...  # noqa: D102

    def get_agent_metadata(self) -> bytes: ...  # noqa: D102

    def add_remote_agent(self, metadata: bytes) -> bytes: ...  # noqa: D102

    def remove_remote_agent(self, name: str) -> None: ...  # noqa: D102

    def get_xfer_descs(self, arrays: Sequence[Bytes]) -> Any: ...  # noqa: D102

    def get_serialized_descs(self, descs: Any) -> bytes: ...  # noqa: D102

    def deserialize_descs(self, data: bytes) -> Any: ...  # noqa: D102

    def initialize_xfer(self, op: str, local: Any, remote: Any, peer: str, notif_msg: bytes = ...) -> Any: ...  # noqa: D102

    def transfer(self, handle: Any) -> str: ...  # noqa: D102

    def check_xfer_state(self, handle: Any) -> str: ...  # noqa: D102

    def release_xfer_handle(self, handle: Any) -> None: ...  # noqa: D102

    def send_notif(self, peer: str, notif_msg: bytes) -> None: ...  # noqa: D102

    def get_new_notifs(self) -> Mapping[str, Sequence[bytes]]: ...  # noqa: D102


class Side:
    """An agent with its two registered buffers, and the messages of its one peer."""

    def __init__(self, agent: Agent, buffers: Sequence[Bytes]) -> None:
        self.agent = agent
        self.buffers = list(buffers)
        self.peer = ""
        self._messages: list[dict[str, Any]] = []
        self._regions = agent.register_memory(self.buffers)

    def meet(self, other: Side) -> None:
        """Know the peer: its memory is registered by now."""
        self.peer = self.agent.add_remote_agent(other.agent.get_agent_metadata()).decode()

    def tell(self, **message: Any) -> None:
        """Send a message to the peer."""
        self.agent.send_notif(self.peer, json.dumps(message).encode())

    def stop(self, why: str) -> None:
        """Tell the peer that nothing more comes, or is taken. A peer that is gone need not be told."""
        try:
            self.tell(stop=why)
        except Exception:
            return

    def hear(self, key: str, wait: Wait, what: str) -> dict[str, Any]:
        """The next message with this key. StreamFailed when the peer stops first, or when no time is left."""
        if not wait(lambda: self._has(key), what):
            raise StreamFailed(f"transfer: {what} did not come in time")
        self._pull()
        for at, message in enumerate(self._messages):
            if key in message or "stop" in message:
                found = self._messages.pop(at)
                break
        if "stop" in found:
            raise StreamFailed(f"transfer: {what} will not come: {found['stop']}")
        return found

    def close(self) -> None:
        """Forget the peer and the buffers. Nothing is raised for a process that is gone: they went with it."""
        try:
            if self.peer:
                self.agent.remove_remote_agent(self.peer)
            self.agent.deregister_memory(self._regions)
        except Exception:
            return

    def _has(self, key: str) -> bool:
        try:
            self._pull()
        except Exception:
            return True  # whoever waits will meet the error itself
        return any(key in message or "stop" in message for message in self._messages)

    def _pull(self) -> None:
        for messages in self.agent.get_new_notifs().values():
            self._messages.extend(json.loads(message) for message in messages)


class Sender(Side):
    """A trainer rank's side. `fill_bytes`: how much of a buffer it fills."""

    def __init__(self, agent: Agent, buffers: Sequence[Bytes], fill_bytes: int) -> None:
        if min(fill_bytes, *(buffer.size for buffer in buffers)) < LEAST_BYTES:
            raise ValueError(f"a bucket has at least {LEAST_BYTES} bytes: an element has to fit")
        super().__init__(agent, buffers)
        self.fill_bytes = fill_bytes

    def send(self, stream: Iterator[tuple[str, Bytes]], wait: Wait) -> None:
        """The whole stream; back when all of it was read. StreamFailed."""
        self._sent = self._read = self._used = 0
        self._chunks: list[dict[str, Any]] = []
        for name, tensor in stream:
            self._put(name, tensor, wait)
        self._flush(wait, last=True)
        self._await(self._sent, wait)

    def _put(self, name: str, tensor: Bytes, wait: Wait) -> None:
        data = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
        about = {"name": name, "dtype": str(tensor.dtype), "shape": list(tensor.shape), "of": data.size}
        start, whole = 0, False
        while not whole:
            offset = -(-self._used // tensor.itemsize) * tensor.itemsize
            room = max(0, self.fill_bytes - offset) // tensor.itemsize * tensor.itemsize
            size = min(room, data.size - start)
            if size or not data.size:
                self.buffers[self._sent % BUFFERS][offset : offset + size] = data[start : start + size]
                self._chunks.append({**about, "offset": offset, "size": size, "start": start})
                self._used, start = offset + size, start + size
            whole = start == data.size
            if not whole:
                self._flush(wait)

    def _flush(self, wait: Wait, *, last: bool = False) -> None:
        """Offer what was filled; then the other buffer, as soon as what it held before was read."""
        buffer = self.buffers[self._sent % BUFFERS]
        descs = self.agent.get_serialized_descs(self.agent.get_xfer_descs([buffer]))
        self.tell(bucket=self._sent, chunks=self._chunks, last=last, descs=descs.hex())
        self._sent += 1
        self._chunks, self._used = [], 0
        self._await(self._sent + 1 - BUFFERS, wait)

    def _await(self, count: int, wait: Wait) -> None:
        while self._read < count:
            self.hear("read", wait, f"the reading of bucket {self._read} by {self.peer}")
            self._read += 1


class Receiver(Side):
    """An engine rank's side. `gpu` is the physical number of its device; `note(bucket, names)` gets each batch."""

    def __init__(
        self, agent: Agent, buffers: Sequence[Bytes], gpu: int, note: Callable[[int, list[str]], None]
    ) -> None:
        super().__init__(agent, buffers)
        self.gpu = gpu
        self._note = note
        self._parts: dict[str, Bytes] = {}

    def news(self) -> bool:
        """Whether a bucket, or the peer's last word, is there."""
        return self._has("bucket")

    def take(self) -> Batch | None:
        """The next bucket, which has come: views that hold until the second one after it is taken, and completed
        copies; None where it has no whole tensor. StreamFailed."""
        bucket = self.hear("bucket", lambda ready, what: ready(), f"a bucket of {self.peer}")
        buffer = self.buffers[(bucket["bucket"] + 1) % BUFFERS]
        self._fetch(bucket, buffer)
        named = [item for chunk in bucket["chunks"] if (item := self._tensor(chunk, buffer))]
        self._note(bucket["bucket"], [name for name, tensor in named if np.shares_memory(tensor, buffer)])
        if bucket["last"] and self._parts:
            raise StreamFailed(f"transfer: the stream of {self.peer} ended within {min(self._parts)}")
        return Batch(named, bucket["last"]) if named or bucket["last"] else None

    def _fetch(self, bucket: Mapping[str, Any], buffer: Bytes) -> None:
        agent = self.agent
        theirs = agent.deserialize_descs(bytes.fromhex(bucket["descs"]))
        read = json.dumps({"read": bucket["bucket"]}).encode()
        handle = agent.initialize_xfer("READ", agent.get_xfer_descs([buffer]), theirs, self.peer, read)
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        agent.release_xfer_handle(handle)
        if state != "DONE":
            raise StreamFailed(f"transfer: reading bucket {bucket['bucket']} of {self.peer} ended in {state}")

    def _tensor(self, chunk: Mapping[str, Any], buffer: Bytes) -> tuple[str, Bytes] | None:
        """A whole tensor as a view, or the copy that its last part completes."""
        part = buffer[chunk["offset"] : chunk["offset"] + chunk["size"]]
        if chunk["size"] < chunk["of"]:
            whole = self._parts.setdefault(chunk["name"], np.empty(chunk["of"], dtype=np.uint8))
            whole[chunk["start"] : chunk["start"] + chunk["size"]] = part
            if chunk["start"] + chunk["size"] < chunk["of"]:
                return None
            part = self._parts.pop(chunk["name"])
        return chunk["name"], part.view(np.dtype(chunk["dtype"])).reshape(chunk["shape"])
