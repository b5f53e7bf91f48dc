"""Refuses pickles that are built to exhaust memory or the C stack, before the unpickler sees them.

SGLang has no such limits; no weight payload comes near them.
"""

from __future__ import annotations

import pickletools

from fakes.engine.tensors import PayloadError

MAX_OPS = 2_000_000
MAX_NESTED = 500

# Opcode byte -> bytes of its argument; pickletools writes what is variable as a negative number.
_ARGUMENT = {ord(op.code): op.arg.n if op.arg else 0 for op in pickletools.opcodes}
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_NAMES = {op.name: ord(op.code) for op in pickletools.opcodes}
_NESTING = frozenset(_NAMES[name] for name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET"))
# After one of these the tuples before it sit inside something that is not hashed by its contents.
_SHELTER = frozenset(
    _NAMES[name]
    for name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD", "REDUCE", "NEWOBJ", "NEWOBJ_EX")
)
_STOP, _LONG_BINPUT, _PUT = _NAMES["STOP"], _NAMES["LONG_BINPUT"], _NAMES["PUT"]


def check_limits(data: bytes) -> None:
    """PayloadError MemoryError for a memo index beyond the data (the C unpickler allocates up to it), for too many
    operations, and for more than MAX_NESTED tuples in a row (hashing nested tuples recurses in C). Malformed data
    passes: the unpickler says what is wrong with it.
    """
    position, nested, count, size = 0, 0, 0, len(data)
    while position < size:
        opcode = data[position]
        width = _ARGUMENT.get(opcode)
        position += 1
        count += 1
        if width is None or opcode == _STOP:
            return
        if opcode in _NESTING:
            nested += 1
        elif opcode in _SHELTER:
            nested = 0
        elif opcode == _LONG_BINPUT:
            _check_memo(int.from_bytes(data[position : position + 4], "little"), size)
        if nested > MAX_NESTED or count > MAX_OPS:
            raise PayloadError("MemoryError", "the pickle nests too deep or has too many operations")
        if width >= 0:
            position += width
        elif width == pickletools.UP_TO_NEWLINE:
            end = data.find(b"\n", position)
            if opcode in b"ci" and end >= 0:  # GLOBAL and INST: a module and a name, a line each
                end = data.find(b"\n", end + 1)
            if end < 0:
                return
            if opcode == _PUT and (digits := data[position:end].strip()).isdigit():
                _check_memo(int(digits[:20]), size)
            position = end + 1
        else:
            length = _LENGTH_BYTES[width]
            position += length + int.from_bytes(data[position : position + length], "little")


def _check_memo(index: int, size: int) -> None:
    if index > size:
        raise PayloadError("MemoryError", f"memo index {index} in a pickle of {size} bytes")
