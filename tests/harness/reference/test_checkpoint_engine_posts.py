"""What a checkpoint-engine transfer posts and frees, whom it waits for, and in which words it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fakes.transport.nixl import Host
from harness.reference.deadline import Deadline
from harness.reference.engines import Weights
from harness.reference.errors import BadState, CallFailed, StreamFailed
from harness.reference.transports.streaming import Side
from tests.harness.reference.test_checkpoint_engine import DTYPES, Clock, Rig, plain, tensor

UINT8 = DTYPES[0]


def connected(rig: Rig) -> Rig:
    rig.transport.connect(rig.engines, Deadline(Clock(rig.world), 10.0))
    return rig


def test_one_post_word_by_word_while_its_payloads_live() -> None:
    rig, during = Rig(), []
    answer = rig.endpoints[0].request
    rig.endpoints[0].request = lambda *args, **more: during.append(rig.live) or answer(*args, **more)
    assert rig.refit({"a": tensor(UINT8, (9,), 1), "b": tensor(DTYPES[2], (4,), 2)}) == 2
    first, last = rig.endpoints[0].posts
    assert first == {
        "serialized_named_tensors": ["payload 0", "payload 1"],
        "load_format": "flattened_bucket",
        "flush_cache": False,
    }
    assert last == {**first, "serialized_named_tensors": ["payload 2", "payload 3"], "weight_version": "v1"}
    assert during == [2, 2]
    assert rig.live == 0
    (engine,) = rig.engines
    assert (engine.touched, engine.weights, engine.complete) == (True, Weights.TORN, True)


def test_the_calls_of_the_engine_that_got_most_are_counted() -> None:
    rig = Rig(engines=2, bucket_bytes=64)
    assert rig.refit(plain(12)) == max(len(e.posts) for e in rig.endpoints) > 5


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), OSError("wire")])
def test_payloads_are_freed_whatever_a_post_raises(error: BaseException) -> None:
    rig = Rig()

    def request(*args: Any, **more: Any) -> Any:
        raise error

    rig.endpoints[0].request = request
    with pytest.raises(type(error)):
        rig.refit(plain())
    assert rig.live == 0
    assert rig.engines[0].touched


def test_an_export_that_fails_frees_those_of_the_other_ranks() -> None:
    rig = Rig()
    export = rig.kit.export
    rig.kit.export = lambda gpu, named, consumers: export(gpu, named, consumers) if gpu == 0 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        rig.refit(plain())
    assert (rig.live, len(rig.copies)) == (0, 1)
    assert not rig.engines[0].touched


def test_a_rank_without_a_receiver_may_fail_too() -> None:
    rig = Rig(tp=1, spare=1)

    def spoil(rank: int, walk: Any) -> Any:
        yield from walk
        if rank == 1:
            raise OSError("bad disk")

    rig.kit.spoil = spoil
    with pytest.raises(OSError, match=r"^bad disk$"):
        rig.refit(plain())


def test_a_sender_that_fails_when_all_was_read_fails_the_refit() -> None:
    rig = connected(Rig(tp=1))
    sender = rig.transport.senders[0]
    send = sender.send

    def failing(*args: Any) -> None:
        send(*args)
        raise OSError("lost")

    sender.send = failing
    with pytest.raises(OSError, match=r"^lost$"):
        rig.refit(plain())
    assert rig.engines[0].complete


def test_a_rank_whose_receiver_stopped_walks_the_export_with_the_others() -> None:
    rig = Rig(engines=2)
    rig.endpoints[0].refuse = 1
    with pytest.raises(CallFailed, match="transfer failed on e0"):
        rig.refit(plain(100))
    assert rig.world.now < 1.0
    assert [engine.complete for engine in rig.engines] == [False, True]


def test_each_peer_is_told_once_that_nothing_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, said = Rig(tp=1), []
    tell = Side.tell

    def kept(self: Side, **message: Any) -> None:
        if "stop" in message:
            said.append((self.agent.name, message["stop"]))
        tell(self, **message)

    monkeypatch.setattr(Side, "tell", kept)
    rig.endpoints[0].refuse = 1
    with pytest.raises(CallFailed, match="transfer failed on e0"):
        rig.refit(plain(40))
    assert [name for name, _ in said] == ["e0-0", "trainer-0"]
    assert said[0][1].startswith("CallFailed: transfer failed on e0: HTTP 500")
    assert said[1][1] == f"StreamFailed: transfer: the reading of bucket 1 by e0-0 will not come: {said[0][1]}"


@pytest.mark.parametrize(
    ("lacks", "more", "said"),
    [
        ({"t0", "t1", "t2", "t3", "t4", "t5"}, (), "brought no tensor at all: t0, t1, t2 of 6"),
        ({"t2", "t3", "t4", "t5"}, (), "are not the state: t2, t3, t4 of 4"),
        ((), ("x", "y"), "are not the state: x, y of 2"),
        ({"t5"}, ("x",), "are not the state: t5 of 1"),
    ],
)
def test_streams_that_are_not_the_state_are_told_by_name(lacks: Any, more: Any, said: str) -> None:
    rig = Rig()

    def spoil(rank: int, walk: Any) -> Any:
        for name, value in walk:
            if name not in lacks:
                yield name, value
        for name in more:
            yield name, np.zeros(3, np.uint8)

    rig.kit.spoil = spoil
    with pytest.raises(BadState) as error:
        rig.refit(plain())
    assert str(error.value) == f"transfer: the streams {said}"
    assert not any("weight_version" in post for post in rig.endpoints[0].posts)


# -- agents ------------------------------------------------------------------------------------------------------------


@dataclass
class Refused(Exception):
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__init__("no")
        for note in self.notes:
            self.add_note(note)


@pytest.mark.parametrize(
    ("notes", "said"), [((), "connect: no"), (("a",), "connect: no (a)"), (("a", "b"), "connect: no (a; b)")]
)
def test_an_agent_that_does_not_come_up_is_quoted_with_its_notes(notes: tuple[str, ...], said: str) -> None:
    rig = Rig()

    def agent(name: str, host: Any) -> Any:
        raise Refused(notes)

    rig.kit.fabric.agent = agent
    with pytest.raises(StreamFailed) as error:
        connected(rig)
    assert str(error.value) == said


def test_each_rank_receives_on_the_gpu_of_its_engine_as_its_process_counts() -> None:
    rig = Rig()
    rig.endpoints[0].gpu_ids = (4, 6)
    rig.kit.fabric.beside = lambda engine: Host("beside", (6, 5, 4))
    rig.begin()
    connected(rig)
    assert [receiver.gpu for receiver in rig.transport.receivers["e0"]] == [4, 6]
    assert [(name, rank, data) for name, rank, data in rig.records if name == "receiver"] == [
        ("receiver", 0, {"engine": "e0", "incarnation": 0, "tp_rank": at, "device": device, "sees": [6, 5, 4]})
        for at, device in ((0, 2), (1, 0))
    ]


def test_without_numbers_an_engine_has_the_gpus_that_its_process_sees() -> None:
    rig = Rig()
    rig.endpoints[0].gpu_ids = ()
    rig.kit.fabric.beside = lambda engine: Host("beside", (3, 2))
    connected(rig)
    assert [receiver.gpu for receiver in rig.transport.receivers["e0"]] == [3, 2]


def test_every_other_rank_fills_three_quarters_and_none_less_than_an_element() -> None:
    rig = connected(Rig(engines=2))
    assert [rig.transport.senders[rank].fill_bytes for rank in range(4)] == [256, 192, 256, 192]
    small = connected(Rig(bucket_bytes=64))
    assert [small.transport.senders[rank].fill_bytes for rank in range(2)] == [64, 64]


def test_batches_are_noted_by_rank_0_and_sides_are_closed_once() -> None:
    rig = Rig(tp=1)
    rig.refit(plain())
    rig.transport.close(rig.engines)
    names = [name for name, _, _ in rig.records]
    assert {rank for name, rank, _ in rig.records if name == "batch"} == {0}
    assert names.count("nixl_deregister") == 2
    assert "nixl_error" not in names
