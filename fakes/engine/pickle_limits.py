"""Refuses pickles that are built to exhaust memory or the C stack, before the unpickler sees them.

SGLang has no such limits; no weight payload comes near them.
"""

from __future__ import annotations

import pickletools

from fakes.engine.tensors import PayloadError

MAX_OPS = 2_000_000
MAX_DEPTH = 500
_TUPLES = frozenset({"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET"})
_LEAVES = frozenset({"APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD", "REDUCE", "NEWOBJ", "NEWOBJ_EX", "ADDITEMS"})


def check_limits(data: bytes) -> None:
    """PayloadError MemoryError for a memo index beyond the data (the C unpickler allocates up to it), for too many
    operations,
    or for more than MAX_DEPTH tuples that may be nested in one another (hashing them recurses in C). Malformed data
    passes: the unpickler says what is wrong."""
    nested = 0
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            name = opcode.name
            if name in _TUPLES:
                nested += 1
            elif name in _LEAVES:
                nested = 0
            elif name in ("LONG_BINPUT", "PUT") and isinstance(argument, int) and argument > len(data):
                raise PayloadError("MemoryError", f"memo index {argument} in a pickle of {len(data)} bytes")
            if nested > MAX_DEPTH or count > MAX_OPS:
                raise PayloadError("MemoryError", "the pickle nests too deep or has too many operations")
    except PayloadError:
        raise
    except Exception:
        return
