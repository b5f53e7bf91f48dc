"""What a checkpoint engine's parameter server sends its worker over ZMQ, read without executing anything.

The worker takes plain pickles (checkpoint_engine/worker.py:63,81@0.4.2): what torch's `reduce_tensor` gives for one
uint8 buffer, then lists of {name, dtype, shape, offset} that cut weights out of it, then None, or an exception. Here
every global is a stand-in, as in `payload`, and an exception is its text.
"""

from __future__ import annotations

import builtins
import io
import reprlib
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fakes.engine import standins
from fakes.engine.allowlist import EXACT202, AllowList
from fakes.engine.payload import Resolver, _Unpickler
from fakes.engine.pickle_limits import check_limits
from fakes.engine.protocol import Raised
from fakes.engine.tensors import BYTE, PayloadError, Size, Tensor

Kind = Literal["buffer", "weights", "none", "stop", "other"]

MAX_MESSAGE_BYTES = 64 << 20
"""Metadata only: the weights are in the buffer."""


@dataclass
class Message:
    """One request: its kind, the (name, array) views of a "weights", the text of a "stop", the class name of an
    "other"; `error` is what reading it raised."""

    kind: Kind
    named: list[tuple[str, np.ndarray]] = field(default_factory=list)
    text: str = ""
    error: Raised | None = None


@dataclass(frozen=True)
class Stop:
    """An exception that was sent instead of weights."""

    text: str


class _Table(standins.Table):
    """Globals of a message: the payload's, and exceptions."""

    def find(self, module: str, name: str) -> Any:
        known = getattr(builtins, name, None) if module == "builtins" else None
        if isinstance(known, type) and issubclass(known, BaseException):
            return standins.Function(name, lambda *args: Stop(_words(args[0]) if args else ""))
        return super().find(module, name)


def _words(value: Any) -> str:
    """The text of what an exception was made of: of anything but text and numbers the beginning, since a container that
    is shared at every level would be as long as two to the power of its depth."""
    return str(value) if isinstance(value, str | int | float | bytes | None) else _BRIEF.repr(value)


_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 3


class Reader:
    """The messages of one update of rank `rank`, in order; it keeps the buffer that they speak of."""

    def __init__(self, rank: int, resolver: Resolver | None, allow: AllowList = EXACT202) -> None:
        self._rank, self._resolver, self._allow = rank, resolver, allow
        self._buffer: Tensor | None = None

    def read(self, data: bytes) -> Message:
        """One request as it came."""
        try:
            value = self._unpickle(data)
        except PayloadError as error:
            return Message("other", error=Raised(error.type, error.message))
        except Exception as error:
            return Message("other", error=Raised(type(error).__name__, str(error)))
        if value is None:
            self._buffer = None
            return Message("none")
        if isinstance(value, Stop):
            return Message("stop", text=value.text)
        kind: Kind = "buffer" if isinstance(value, tuple) else "weights" if isinstance(value, list) else "other"
        message = Message(kind, text=type(value).__name__)
        try:
            if kind == "buffer":
                self._buffer = _rebuilt(value)
            elif kind == "weights":
                message.named = [self._weight(item) for item in value]
        except PayloadError as error:
            message.error = Raised(error.type, error.message)
        except Exception as error:  # the wrong kind of object: Python's own words, as in the worker
            message.error = Raised(type(error).__name__, str(error))
        return message

    def _unpickle(self, data: bytes) -> Any:
        if len(data) > MAX_MESSAGE_BYTES:
            raise PayloadError("MemoryError", f"a message of {len(data)} bytes is larger than {MAX_MESSAGE_BYTES}")
        checked = check_limits(data)
        return _Unpickler(io.BytesIO(data[:checked]), _Table(self._allow, self._rank, self._resolver)).load()

    def _weight(self, item: Any) -> tuple[str, np.ndarray]:
        """checkpoint_engine/worker.py:35@0.4.2."""
        if self._buffer is None:
            raise AssertionError
        shape, dtype, offset = Size(item["shape"]), item["dtype"], item["offset"]
        count = 1
        for size in shape:
            count *= size
        cut = self._buffer[offset : offset + dtype.itemsize * count]
        return item["name"], cut.view(dtype).reshape(tuple(shape)).array()


def _rebuilt(handle: Any) -> Tensor:
    """_rebuild_ipc: the device index of a CUDA handle becomes the worker's own (checkpoint_engine/worker.py:16@0.4.2).

    What file_system shared memory is rebuilt from has no such argument: the real worker, which has a GPU, meets none.
    """
    rebuild, args = handle
    if not isinstance(rebuild, standins.Function):
        raise PayloadError("TypeError", f"{type(rebuild).__name__!r} object is not callable")
    given = list(args)
    if len(given) > 6:
        given[6] = 0
    tensor = rebuild(*given)
    if not isinstance(tensor, Tensor) or tensor.dtype is not BYTE:
        raise AssertionError
    return tensor
