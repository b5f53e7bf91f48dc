"""One stream through two buffers, over agents that keep every call: what is told, what is waited for, what is freed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from harness.reference.errors import StreamFailed
from harness.reference.transports.streaming import Receiver, Sender, Side

AGENTS: dict[str, Wire] = {}


class Wire:
    """An agent whose peer's memory is read when the last of `states` is reached; calls named in `fails` raise."""

    def __init__(self, name: str, states: Sequence[str] = ("PROC", "PROC", "DONE"), fails: Sequence[str] = ()) -> None:
        self.name, self.states, self.fails = name, list(states), fails
        self.calls: list[str] = []
        self.inbox: list[bytes] = []
        AGENTS[name] = self

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise OSError(name)

    def register_memory(self, arrays: Sequence[Any]) -> Any:
        self._call("register")
        return tuple(arrays)

    def deregister_memory(self, regions: Any) -> None:
        self._call(f"deregister {len(regions)}")

    def get_agent_metadata(self) -> bytes:
        return self.name.encode()

    def add_remote_agent(self, metadata: bytes) -> bytes:
        return metadata

    def remove_remote_agent(self, name: str) -> None:
        self._call(f"remove {name}")

    def get_xfer_descs(self, arrays: Sequence[Any]) -> Any:
        return arrays

    def get_serialized_descs(self, descs: Any) -> bytes:
        return b"\x00" + descs[0].tobytes()

    def deserialize_descs(self, data: bytes) -> Any:
        return np.frombuffer(data[1:], dtype=np.uint8)

    def initialize_xfer(self, op: str, local: Any, remote: Any, peer: str, notif_msg: bytes = b"") -> Any:
        self._call(f"{op} {peer}")
        return local[0], remote, peer, notif_msg

    def transfer(self, handle: Any) -> str:
        return self.states[0]

    def check_xfer_state(self, handle: Any) -> str:
        local, remote, peer, message = handle
        self._call("look")
        state = self.states[self.calls.count("look")]
        if state == "DONE":
            local[:] = remote
            AGENTS[peer].inbox.append(message)
        return state

    def release_xfer_handle(self, handle: Any) -> None:
        self._call("free")

    def send_notif(self, peer: str, notif_msg: bytes) -> None:
        self._call("tell")
        AGENTS[peer].inbox.append(notif_msg)

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        found, self.inbox = self.inbox, []
        return {"peer": found} if found else {}


def memory(*sizes: int) -> list[Any]:
    return [np.zeros(size, dtype=np.uint8) for size in sizes]


def pair(size: int = 64, fill: int = 64, **wire: Any) -> tuple[Sender, Receiver]:
    sender = Sender(Wire("s"), memory(size, size), fill)
    receiver = Receiver(Wire("r", **wire), memory(size, size), 0, lambda bucket, names: None)
    sender.meet(receiver)
    receiver.meet(sender)
    return sender, receiver


def never(ready: Callable[[], bool], what: str) -> bool:
    return ready()


def told(agent: Any) -> list[dict[str, Any]]:
    return [json.loads(message) for message in agent.inbox]


def sent(sender: Sender, *tensors: tuple[str, Any]) -> list[dict[str, Any]]:
    """Every bucket that a stream becomes, each read as soon as it is waited for."""

    def read(ready: Callable[[], bool], what: str) -> bool:
        sender.agent.inbox.append(json.dumps({"read": 0}).encode())  # type: ignore[attr-defined]
        return ready()

    sender.send(iter(tensors), read)
    return told(AGENTS["r"])


def spans(bucket: dict[str, Any]) -> list[tuple[str, int, int, int]]:
    return [(chunk["name"], chunk["offset"], chunk["size"], chunk["start"]) for chunk in bucket["chunks"]]


@pytest.mark.parametrize("sizes", [(63, 64), (64, 63), (63, 63)])
def test_every_buffer_has_room_for_an_element(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"^a bucket has at least 64 bytes: an element has to fit$"):
        Sender(Wire("s"), memory(*sizes), 64)
    with pytest.raises(ValueError, match="at least 64 bytes"):
        Sender(Wire("s"), memory(64, 64), 63)
    Sender(Wire("s"), memory(64, 64), 64)


def test_buffers_are_filled_to_the_last_element_and_nothing_empty_is_told() -> None:
    sender, _ = pair()
    words = np.arange(20, dtype=np.uint32)
    buckets = sent(sender, ("odd", np.arange(5, dtype=np.uint8)), ("words", words), ("none", words[:0]))
    assert [spans(bucket) for bucket in buckets] == [
        [("odd", 0, 5, 0), ("words", 8, 56, 0)],
        [("words", 0, 24, 56), ("none", 24, 0, 0)],
    ]
    assert [(bucket["bucket"], bucket["last"]) for bucket in buckets] == [(0, False), (1, True)]


def test_a_buffer_that_is_full_is_told_before_the_next_tensor() -> None:
    sender, _ = pair()
    buckets = sent(sender, *((name, np.full(64, at, dtype=np.uint8)) for at, name in enumerate("abc")))
    assert [spans(bucket) for bucket in buckets] == [[(name, 0, 64, 0)] for name in "abc"]
    fuller, _ = pair(size=128, fill=96)
    assert [spans(bucket) for bucket in sent(fuller, ("a", np.zeros(97, dtype=np.uint8)))] == [
        [("a", 0, 96, 0)],
        [("a", 0, 1, 96)],
    ]


def test_the_second_buffer_is_filled_while_the_first_is_not_read() -> None:
    sender, _ = pair()
    with pytest.raises(StreamFailed, match=r"^transfer: the reading of bucket 0 by r did not come in time$"):
        sender.send(iter([("a", np.zeros(300, dtype=np.uint8))]), never)
    assert [bucket["bucket"] for bucket in told(AGENTS["r"])] == [0, 1]


def test_a_stream_begins_anew_after_one_that_broke_off() -> None:
    sender, _ = pair()
    with pytest.raises(StreamFailed):
        sender.send(iter([("a", np.zeros(300, dtype=np.uint8))]), never)
    AGENTS["r"].inbox.clear()
    (only,) = sent(sender, ("b", np.ones(3, dtype=np.uint8)))
    assert (only["bucket"], spans(only), only["last"]) == (0, [("b", 0, 3, 0)], True)


def test_a_read_is_looked_after_until_it_is_done_and_freed_once() -> None:
    sender, receiver = pair()
    data = np.arange(16, dtype=np.uint32)
    with pytest.raises(StreamFailed, match="in time"):
        sender.send(iter([("a", data)]), never)
    batch = receiver.take()
    assert batch is not None
    assert [(name, value.tolist()) for name, value in batch.named] == [("a", data.tolist())]
    assert AGENTS["r"].calls == ["register", "READ s", "look", "look", "free"]
    assert told(AGENTS["s"]) == [{"read": 0}]


@pytest.mark.parametrize("states", [("ERR",), ("PROC", "ERR")])
def test_a_read_that_ends_otherwise_is_an_error_and_freed_too(states: tuple[str, ...]) -> None:
    sender, receiver = pair(states=states)
    with pytest.raises(StreamFailed, match="in time"):
        sender.send(iter([("a", np.zeros(4, dtype=np.uint8))]), never)
    with pytest.raises(StreamFailed, match=r"^transfer: reading bucket 0 of s ended in ERR$"):
        receiver.take()
    assert AGENTS["r"].calls[-1] == "free"
    assert AGENTS["r"].calls.count("free") == 1


def test_stopping_is_told_once_and_only_to_who_is_there() -> None:
    sender, receiver = pair()
    sender.stop("why")
    assert told(receiver.agent) == [{"stop": "why"}]
    with pytest.raises(StreamFailed, match=r"^transfer: a bucket of s will not come: why$"):
        receiver.take()
    gone = Side(Wire("g", fails=["tell"]), [])
    gone.stop("why")
    assert AGENTS["g"].calls == ["register", "tell"]


def test_closing_forgets_the_peer_then_the_memory_once_and_raises_nothing() -> None:
    sender, _ = pair()
    sender.close()
    assert AGENTS["s"].calls == ["register", "remove r", "deregister 2"]
    alone = Side(Wire("alone"), memory(64))
    alone.close()
    assert AGENTS["alone"].calls == ["register", "deregister 1"]
    for failing in ("remove peer", "deregister 1"):
        side = Side(Wire("x", fails=[failing]), memory(64))
        side.peer = "peer"
        side.close()
        assert failing in AGENTS["x"].calls
