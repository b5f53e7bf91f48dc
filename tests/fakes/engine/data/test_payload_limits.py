"""How large a payload may be, what its parts say, and what is judged when nobody loads it."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import numpy as np
import pytest

from fakes.engine import payload as module
from fakes.engine.allowlist import EXACT202
from fakes.engine.payload import PayloadError, open_payload
from fakes.engine.standins import LocalSerializedTensor
from fakes.engine.tensors import Storage, Tensor, dtype_named
from fakes.trainer.pickling import Global, Object, dumps

HOME = EXACT202.local_tensor_module


def opened(data: bytes, **more: Any) -> Any:
    given = {"profile_allow": EXACT202, "rank": 0, "load_format": None, "resolver": None, **more}
    return open_payload(data, **given)


def said(call: Any) -> str:
    with pytest.raises(PayloadError) as error:
        call()
    return f"{error.value.type}: {error.value.message}"


def local(*values: Any) -> bytes:
    return dumps([("w", Object(Global(HOME, "LocalSerializedTensor"), {"values": list(values)}))])


def test_the_bytes_of_a_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dumps([])
    monkeypatch.setattr(module, "MAX_PAYLOAD_BYTES", len(data))
    assert opened(data) == []
    monkeypatch.setattr(module, "MAX_PAYLOAD_BYTES", len(data) - 1)
    assert said(lambda: opened(data)) == (f"MemoryError: a payload of {len(data)} bytes is larger than {len(data) - 1}")


def test_what_no_runner_loads_is_only_unpickled() -> None:
    """A selector that names no runner (weight_updater.py:232@0.5.23)."""
    for value in ([("a", "b")], 5, {"metadata": 1}):
        assert opened(dumps(value), unpickle_only=True) == []
    assert said(lambda: opened(b"", unpickle_only=True)) == "EOFError: Ran out of input"


def test_the_inner_bytes_of_all_parts_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = dumps(5)
    two = [("a", Object(Global(HOME, "LocalSerializedTensor"), {"values": [inner]}))] * 2
    monkeypatch.setattr(module, "MAX_INNER_BYTES", 2 * len(inner) - 1)
    no_tensor = "AttributeError: 'int' object has no attribute 'to'"
    assert said(lambda: opened(dumps(two[:1]))) == no_tensor
    monkeypatch.setattr(module, "MAX_INNER_BYTES", len(inner))
    assert said(lambda: opened(local(inner))) == no_tensor
    monkeypatch.setattr(module, "MAX_INNER_BYTES", len(inner) - 1)
    words = f"MemoryError: inner payloads of more than {len(inner) - 1} bytes"
    assert said(lambda: opened(local(inner))) == words


def tensors(count: int) -> list[tuple[str, Any]]:
    part = LocalSerializedTensor()
    part.__setstate__({"values": [dumps([])]})
    return [("w", part)] * count


def test_inner_bytes_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = dtype_named("uint8")
    assert dtype is not None
    tensor = Tensor(Storage(np.zeros(4, np.uint8)), dtype, 0, (4,), (1,))
    monkeypatch.setattr(module, "unpickle", lambda data, **more: tensor)
    size = len(dumps([]))
    monkeypatch.setattr(module, "MAX_INNER_BYTES", 2 * size)
    assert len(module._named(tensors(2), EXACT202, 0, None)) == 2
    assert said(lambda: module._named(tensors(3), EXACT202, 0, None)) == (
        f"MemoryError: inner payloads of more than {2 * size} bytes"
    )


def test_a_tensor_in_place_of_a_list_is_walked_row_by_row_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch iterates over the first dimension; a view of no bytes can have any number of rows."""
    dtype = dtype_named("uint8")
    assert dtype is not None
    storage = Storage(np.zeros(4, np.uint8))
    monkeypatch.setattr(module, "MAX_TENSORS", 2)
    words = "MemoryError: a payload of more than 2 tensors"
    assert said(lambda: module._named(Tensor(storage, dtype, 0, (3, 0), (0, 1)), EXACT202, 0, None)) == words
    with pytest.raises(ValueError, match="not enough values to unpack"):
        module._named(Tensor(storage, dtype, 0, (2, 0), (0, 1)), EXACT202, 0, None)
    with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
        module._named(Tensor(storage, dtype, 0, (), ()), EXACT202, 0, None)
    assert module._named([("a", Tensor(storage, dtype, 0, (4,), (1,)))] * 3, EXACT202, 0, None)[2][0] == "a"


def test_a_part_may_be_text_or_bytes() -> None:
    """MultiprocessingSerializer.deserialize takes base64 text too (utils/common.py@0.5.23)."""
    inner = pickle.dumps(5, 4)
    no_tensor = "AttributeError: 'int' object has no attribute 'to'"
    assert said(lambda: opened(local(inner))) == no_tensor
    assert said(lambda: opened(local(base64.b64encode(inner).decode()))) == no_tensor
    assert said(lambda: opened(local("!" + base64.b64encode(inner).decode()))).startswith("Error: ")
    assert said(lambda: opened(local(5))) == "TypeError: memoryview: a bytes-like object is required, not 'int'"
