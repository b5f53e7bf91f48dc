"""Writes pickles that name globals of modules which are not here: torch's and SGLang's own names, without importing
them."""

from __future__ import annotations

import pickle
import struct
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
    """A protocol 4 pickle of None, bool, int, float, str, bytes, tuple, list, dict and the three above. TypeError
    for the rest."""
    out = bytearray(pickle.PROTO + b"\x04")
    _write(out, value)
    out += pickle.STOP
    return bytes(out)


def _write(out: bytearray, value: Any) -> None:
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
            data = value.encode("utf-8", "surrogatepass")
            out += pickle.BINUNICODE + struct.pack("<I", len(data)) + data
        case bytes():
            out += pickle.BINBYTES8 + struct.pack("<Q", len(value)) + value
        case tuple():
            out += pickle.MARK
            for item in value:
                _write(out, item)
            out += pickle.TUPLE
        case list():
            out += pickle.EMPTY_LIST + pickle.MARK
            for item in value:
                _write(out, item)
            out += pickle.APPENDS
        case dict():
            out += pickle.EMPTY_DICT + pickle.MARK
            for key, item in value.items():
                _write(out, key)
                _write(out, item)
            out += pickle.SETITEMS
        case Global(module, name):
            _write(out, module)
            _write(out, name)
            out += pickle.STACK_GLOBAL
        case Reduce(function, args):
            _write(out, function)
            _write(out, args)
            out += pickle.REDUCE
        case Object(cls, state):
            _write(out, cls)
            out += pickle.EMPTY_TUPLE + pickle.NEWOBJ
            _write(out, state)
            out += pickle.BUILD
        case _:
            raise TypeError(f"{type(value).__name__} cannot travel in a payload")
