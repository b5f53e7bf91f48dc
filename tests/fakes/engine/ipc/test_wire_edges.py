"""Messages at the edges: sizes, odd handles, exceptions without words, the GPU of a handle; names of a whole set."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from fakes.engine import ipc_wire
from fakes.engine.ipc_wire import Reader
from fakes.engine.session import Wholeness
from fakes.trainer.pickling import Global, Reduce, dumps
from tests.fakes.engine.ipc.test_wire import REBUILD, SIZE, TENSOR, Memory, offer, reader


class Devices(Memory):
    """Remembers on which GPU a handle was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def cuda(self, handle: Any, rank: int) -> np.ndarray:
        self.seen.append(handle.device)
        return super().cuda(handle, rank)


def test_a_handle_is_opened_on_the_workers_own_gpu() -> None:
    """_rebuild_ipc: list_args[6] = device_id (checkpoint_engine/worker.py:16@0.4.2)."""
    memory = Devices()
    assert Reader(0, memory).read(offer()).error is None
    assert memory.seen == [0]


def test_an_exception_without_words() -> None:
    told = reader().read(pickle.dumps(RuntimeError()))
    assert (told.kind, told.text) == ("stop", "")


def test_a_type_that_is_no_exception_is_not_taken_for_one() -> None:
    told = reader().read(pickle.dumps(bytearray(b"x")))
    assert told.kind == "other"


def test_the_largest_message(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dumps(None)
    monkeypatch.setattr(ipc_wire, "MAX_MESSAGE_BYTES", len(data))
    assert Reader(0, Memory()).read(data).kind == "none"
    monkeypatch.setattr(ipc_wire, "MAX_MESSAGE_BYTES", len(data) - 1)
    told = Reader(0, Memory()).read(data)
    assert told.error is not None
    assert told.error.type == "MemoryError"


@pytest.mark.parametrize(
    ("handle", "kind"),
    [
        ((SIZE, ((1,),)), "TypeError"),
        ((3, ()), "TypeError"),
        ((Global("builtins", "RuntimeError"), ("x",)), "AssertionError"),
        ((REBUILD, ()), "TypeError"),
        ((REBUILD, (TENSOR, Reduce(SIZE, ((8,),)), (1,), 0, 1, 2)), "TypeError"),
    ],
)
def test_what_rebuilds_no_buffer(handle: tuple[Any, Any], kind: str) -> None:
    told = reader().read(dumps(handle))
    assert told.error is not None
    assert told.error.type == kind


def test_a_set_is_whole_by_its_own_names_or_by_those_of_the_device() -> None:
    for sent in (["a", "b", "c"], ["ab", "c"], ["a", "b", "ab", "c"]):
        whole = Wholeness(["a", "b", "c"], ["ab", "c"])
        assert not whole.broken
        whole.sent(["a"])
        whole.break_()
        for name in sent[:-1]:
            whole.sent([name])
            assert whole.broken
        whole.sent(sent[-1:])
        assert not whole.broken


def test_an_exception_made_of_a_container_that_is_shared_at_every_level() -> None:
    """420 bytes whose text would be as long as two to the power of forty."""
    levels = b"".join(b"](h%ch%ceq%c0" % (n, n, n + 1) for n in range(1, 40))
    message = Reader(0, None).read(b"]q\x010" + levels + b"cbuiltins\nException\n(h" + bytes([40]) + b"tR.")
    assert message.kind == "stop"
    assert len(message.text) < 1000
