"""Messages of a parameter server, good and hostile."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fakes.engine.ipc_wire import MAX_MESSAGE_BYTES, Reader
from fakes.trainer.pickling import Global, Reduce, dumps

TYPED, TENSOR, SIZE = Global("torch.storage", "TypedStorage"), Global("torch", "Tensor"), Global("torch", "Size")
REBUILD = Global("torch.multiprocessing.reductions", "rebuild_cuda_tensor")


class Memory:
    def __init__(self, nbytes=64):
        self.data = np.arange(nbytes, dtype=np.uint8)

    def cuda(self, handle, rank):
        return self.data[handle.offset : handle.offset + handle.size]


def offer(dtype="uint8", nbytes=64, function=REBUILD):
    args = (TENSOR, Reduce(SIZE, ((nbytes,),)), (1,), 0, TYPED, Global("torch", dtype), 7, b"h", nbytes, 0, False)
    return dumps((function, args))


def meta(shape=(4,), dtype="float32", offset=8):
    return {"name": "a", "dtype": Global("torch", dtype), "shape": Reduce(SIZE, (shape,)), "offset": offset}


def reader():
    made = Reader(0, Memory())
    assert made.read(offer()).error is None
    return made


def test_a_weight_is_a_live_view_of_the_buffer():
    memory = Memory()
    one = Reader(0, memory)
    one.read(offer())
    ((name, array),) = one.read(dumps([meta()])).named
    memory.data[8] += 1
    assert (name, array.tobytes()) == ("a", memory.data[8:24].tobytes())


@pytest.mark.parametrize(
    ("message", "kind", "error"),
    [
        (dumps(None), "none", None),
        (pickle.dumps(RuntimeError("no more")), "stop", None),
        (dumps(3), "other", None),
        (dumps([meta(shape=(40,))]), "weights", "RuntimeError"),
        (dumps([meta(offset=9)]), "weights", "RuntimeError"),
        (dumps([{"name": "a"}]), "weights", "KeyError"),
        (dumps([3]), "weights", "TypeError"),
        (dumps((TENSOR,)), "buffer", "ValueError"),
        (b"", "other", "EOFError"),
        (b"\x80\x04cos\nsystem\n.", "other", "RuntimeError"),
    ],
)
def test_what_a_message_is(message, kind, error):
    told = reader().read(message)
    assert (told.kind, told.error.type if told.error else None) == (kind, error)


def test_the_text_of_an_exception():
    assert reader().read(pickle.dumps(RuntimeError("no more"))).text == "no more"


def test_a_buffer_of_another_type_is_refused():
    told = Reader(0, Memory()).read(offer("int8"))
    assert told.error.type == "AssertionError"


def test_weights_before_any_buffer_and_after_it_went():
    assert Reader(0, Memory()).read(dumps([meta()])).error.type == "AssertionError"
    one = reader()
    one.read(dumps(None))
    assert one.read(dumps([meta()])).error.type == "AssertionError"


def test_a_callable_that_is_no_rebuild_is_not_called():
    assert reader().read(offer(function=Global("os", "system"))).error.type == "RuntimeError"


def test_a_message_is_bounded():
    assert reader().read(bytes(MAX_MESSAGE_BYTES + 1)).error.type == "MemoryError"
