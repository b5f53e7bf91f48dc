"""An engine's ranks over one update: what is left whole, what is told, and the barrier at the end."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine.ipc_update import device_uuid
from fakes.engine.ipc_wire import Message
from fakes.engine.protocol import Barrier, Done, IpcTurn
from tests.fakes.engine.control.driver import Driver

OP = "update_weights_from_ipc"
BUFFER, NONE, STOP = Message("buffer"), Message("none"), Message("stop", text="no more")


class Wire:
    """An engine in an update over both of its ranks. `say` sends one message to the worker of a rank."""

    def __init__(self, *ranks: int, **config: Any) -> None:
        self.engine = Driver("0.5.23", device="cuda", tp_size=2, checkpoint_engine="0.4.2", **config)
        self.update = self.engine.core.scheduler.updater
        self.call = -1
        self.ranks = ranks or (0, 1)

    def begin(self) -> None:
        handles = {device_uuid(0, rank): f"ipc://{rank}" for rank in self.ranks}
        self.call = self.engine.start(OP, {"zmq_handles": handles})

    def say(self, rank: int, *messages: Message) -> list[bytes | None]:
        """What it answers to each."""
        replies = []
        for message in messages:
            turn = [e for e in self.engine.effects if isinstance(e, IpcTurn) and e.rank == rank][-1]
            self.engine._absorb(self.engine.core.step(Done(turn.id, message), self.engine.now))
            replies.append([e for e in self.engine.effects if isinstance(e, IpcTurn) and e.rank == rank][-1].reply)
        return replies

    def weights(self, seed: int = 1) -> Message:
        return Message("weights", named=list(self.engine.weights(seed).items()))

    def barriers(self) -> int:
        return sum(isinstance(effect, Barrier) and effect.op == OP for effect in self.engine.effects)


def test_a_whole_set_is_one_update_of_every_rank_and_one_barrier() -> None:
    wire = Wire()
    for number in (1, 2):
        wire.begin()
        for rank in (1, 0):
            wire.say(rank, BUFFER, wire.weights(number), NONE, NONE)
        assert wire.engine.result(wire.call).status == 200
        assert not wire.update.torn
        assert wire.barriers() == number
    loads = wire.engine.named("load")
    assert [(load["rank"], load["load_format"], load["digest"]) for load in loads] == [
        (1, "ipc", ""), (0, "ipc", ""), (1, "ipc", ""), (0, "ipc", "")
    ]  # fmt: skip
    assert [load["payload_index"] for load in loads] == [1, 0, 1, 0]
    numbers = [load["update"] for load in loads]
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]


@pytest.mark.parametrize("stopped", [0, 1])
def test_one_rank_that_stopped_leaves_the_set_torn(stopped: int) -> None:
    wire = Wire()
    wire.begin()
    wire.say(1 - stopped, BUFFER, wire.weights(), NONE, NONE)
    wire.say(stopped, BUFFER, STOP)
    reply = wire.engine.result(wire.call)
    assert reply.status == (400 if stopped == 0 else 200), "rank 0 alone answers"
    assert wire.update.torn
    assert wire.barriers() == 1


def test_a_server_that_goes_on_after_a_load_that_failed_gets_a_200_and_torn_weights() -> None:
    wire = Wire()
    wire.begin()
    short = wire.weights()
    short.named = [(name, array[:-1]) for name, array in short.named]
    for rank in (0, 1):
        replies = wire.say(rank, BUFFER, short, NONE, NONE)
        assert (replies[1] or b"").startswith(b"Traceback")
    assert wire.engine.result(wire.call).status == 200
    assert wire.update.torn


def test_a_name_that_is_no_text_is_told_and_kills_nobody() -> None:
    """checkpoint_engine/worker.py:81@0.4.2: except Exception."""
    wire = Wire()
    wire.begin()
    for rank in (0, 1):
        odd = wire.weights()
        odd.named.append((3, odd.named[0][1]))  # type: ignore[arg-type]  # what a server may send
        replies = wire.say(rank, BUFFER, odd, NONE, NONE)
        assert (replies[1] or b"").startswith(b"Traceback")
    assert wire.engine.result(wire.call).status == 200
    assert wire.engine.died is None
    assert wire.update.torn


def test_released_weights_are_told_and_kill_nobody() -> None:
    wire = Wire(enable_memory_saver=True)
    assert wire.engine.call("release_memory_occupation", {"tags": ["weights"]}).status == 200
    wire.begin()
    for rank in (0, 1):
        replies = wire.say(rank, BUFFER, wire.weights(), NONE, NONE)
        assert (replies[1] or b"").startswith(b"Traceback")
    assert wire.engine.result(wire.call).status == 200
    assert wire.engine.died is None
    assert wire.engine.named("load") == []


def test_an_id_that_is_missing_is_told_after_one_barrier() -> None:
    wire = Wire(1)
    wire.begin()
    wire.say(1, BUFFER, wire.weights(), NONE, NONE)
    assert wire.engine.result(wire.call).status == 400
    assert wire.barriers() == 1


def test_without_the_package_nothing_is_connected() -> None:
    engine = Driver("0.5.23", device="cuda")
    reply = engine.call(OP, {"zmq_handles": {device_uuid(0, 0): "ipc://0"}})
    assert reply.status == 400
    assert "checkpoint-engine" in reply.body["message"].replace("_", "-")
    assert not any(isinstance(effect, IpcTurn) for effect in engine.effects)
    assert sum(isinstance(effect, Barrier) for effect in engine.effects) == 1
