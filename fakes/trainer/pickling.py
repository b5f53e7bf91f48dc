"""Writes pickles that name globals of modules which are not here: torch's and SGLang's own names, without importing
them."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Global:
    """module.name."""

    module: str
    name: str


@dataclass(frozen=True)
class Reduce:
    """function(*args)."""

    function: Global
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Object:
    """cls.__new__(cls), then its attributes."""

    cls: Global
    state: dict[str, Any]


def dumps(value: Any) -> bytes:
    """A protocol 4 pickle of None, bool, int, float, str, bytes, tuple, list, dict and the three above.

    TypeError for anything else.
    """
    writer = Writer()
    writer.write(value)
    return writer.end()


class Writer:
    """A pickle that grows. Strings and globals are written once and then taken from the memo.

    `fork` continues a pickle whose beginning is always the same.
    """

    def __init__(self) -> None:
        self.out = bytearray(pickle.PROTO + b"\x04")
        self._memo: dict[str | Global, int] = {}

    def fork(self) -> Writer:
        """A copy that goes on from here."""
        other = Writer()
        other.out = bytearray(self.out)
        other._memo = dict(self._memo)
        return other

    def raw(self, opcodes: bytes) -> None:
        """Opcodes as they are."""
        self.out += opcodes

    def end(self) -> bytes:
        """The whole pickle."""
        return bytes(self.out + pickle.STOP)

    def write(self, value: Any) -> None:
        """Append the opcodes of a value."""
        out = self.out
        match value:
            case None:
                out += pickle.NONE
            case bool():
                out += pickle.NEWTRUE if value else pickle.NEWFALSE
            case int():
                data = pickle.encode_long(value)
                out += pickle.LONG1 + bytes([len(data)]) + data
            case float():
                out += pickle.BINFLOAT + struct.pack(">d", value)
            case str():
                if not self._recall(value):
                    data = value.encode("utf-8", "surrogatepass")
                    out += pickle.BINUNICODE + struct.pack("<I", len(data)) + data
                    self._memoize(value)
            case bytes():
                out += pickle.BINBYTES8 + struct.pack("<Q", len(value)) + value
            case tuple():
                self._all(pickle.MARK, value, pickle.TUPLE)
            case list():
                self._all(pickle.EMPTY_LIST + pickle.MARK, value, pickle.APPENDS)
            case dict():
                flat = (part for item in value.items() for part in item)
                self._all(pickle.EMPTY_DICT + pickle.MARK, flat, pickle.SETITEMS)
            case Global(module, name):
                if not self._recall(value):
                    self._all(b"", (module, name), pickle.STACK_GLOBAL)
                    self._memoize(value)
            case Reduce(function, args):
                self._all(b"", (function, args), pickle.REDUCE)
            case Object(cls, state):
                self._all(b"", (cls,), pickle.EMPTY_TUPLE + pickle.NEWOBJ)
                self._all(b"", (state,), pickle.BUILD)
            case _:
                raise TypeError(f"{type(value).__name__} cannot travel in a payload")

    def _all(self, before: bytes, items: Iterable[Any], after: bytes) -> None:
        self.out += before
        for item in items:
            self.write(item)
        self.out += after

    def _recall(self, value: str | Global) -> bool:
        index = self._memo.get(value)
        if index is None:
            return False
        self.out += pickle.LONG_BINGET + struct.pack("<I", index)
        return True

    def _memoize(self, value: str | Global) -> None:
        self._memo[value] = len(self._memo)
        self.out += pickle.MEMOIZE
