"""Refuses pickles that are built to exhaust memory, time or the C stack, before the unpickler sees them.

SGLang has no such limits; no weight payload comes near them. The pickle is gone through once without making anything:
a stack and a memo of *costs*, what hashing or comparing an object once may take. Tuples that share a tuple cost the sum
of their parts, so that 25 levels of them cost 2**25 and are refused where they would become the key of a dict, as is
what a payload made itself by calling something.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Callable
from functools import partial

from fakes.engine.tensors import PayloadError

MAX_OPS = 2_000_000
MAX_KEY = 1000
"""What one key may cost: an atom 1, a string one per 64 bytes, a tuple the sum of its parts and 1."""
MAX_HASHING = 50_000_000
"""What all keys may cost. The n-th key that is no string costs n: integers of equal hash make a dict quadratic."""

MAX_ARCHIVE = 1 << 30
"""Unpacked bytes of what torch.save wrote as an archive."""

_LEGACY_PICKLES = 5
_STRING_CHUNK = 64
_ENDLESS = 1 << 40
"""Cost of what the pickle makes by a call: its size is not known here."""

_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_CODES = {op.name: ord(op.code) for op in pickletools.opcodes}
_LAST = -1000
"""In place of an argument's width: nothing follows STOP, or an opcode that nobody knows."""
_TWO_LINES = frozenset({_CODES["GLOBAL"], _CODES["INST"]})


def check_limits(data: bytes) -> int:
    """How many bytes of `data` may be unpickled: up to STOP, or up to the first operation that the unpickler itself
    refuses (an unknown opcode, an empty stack); then it has the last word and never sees what follows.

    PayloadError MemoryError for keys that cost too much, for too many operations, and for a memo index beyond what the
    data can fill (the C unpickler allocates up to it); ValueError for a memo index that is not plain digits.
    """
    machine = _Machine(len(data))
    push, table = machine.stack.append, _TABLE
    position, size = 0, len(data)
    for _ in range(MAX_OPS):
        if position >= size:
            return size
        opcode = data[position]
        width, handle = table[opcode]
        start = position = at = position + 1
        if not width:  # most operations of a pickle that is built to take long
            if handle is _push:
                push(1)
            elif not handle(machine, data, start, start):
                return start
            continue
        if width > 0:
            position += width
        elif width == _LAST:
            return position
        elif width == pickletools.UP_TO_NEWLINE:
            end = data.find(b"\n", position)
            if opcode in _TWO_LINES and end >= 0:
                end = data.find(b"\n", end + 1)
            if end < 0:
                return at
            position = end + 1
        else:
            start += _LENGTH_BYTES[width]
            position = start + int.from_bytes(data[at:start], "little")
        if position > size:  # cut off; of what names its own length not even that is shown, or C would allocate it
            return at if opcode in _COUNTED else size
        if not handle(machine, data, start, position):
            return position
    raise PayloadError("MemoryError", f"a pickle of more than {MAX_OPS} operations")


def check_torch_file(data: bytes | bytearray) -> None:
    """The same for every pickle in what torch.save wrote: the first five of the legacy format, or those of an archive.

    PayloadError; nothing for what is no such file, torch says what is wrong with it.
    """
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(item.file_size for item in archive.infolist()) > MAX_ARCHIVE:
                raise PayloadError("MemoryError", f"an archive of more than {MAX_ARCHIVE} bytes")
            for item in archive.infolist():
                if item.filename.endswith(".pkl"):
                    check_limits(archive.read(item))
        return
    rest = bytes(data)
    for _ in range(_LEGACY_PICKLES):
        rest = rest[check_limits(rest) :]


class _Machine:
    """The unpickler's stack, marks and memo, of costs. Strings are negative: their hashes do not collide on purpose."""

    __slots__ = ("_budget", "_keys", "marks", "memo", "memo_limit", "stack")

    def __init__(self, size: int) -> None:
        self.stack: list[int] = []
        self.marks: list[int] = []
        self.memo: dict[int, int] = {}
        self.memo_limit = min(size, MAX_OPS)
        self._budget = MAX_HASHING
        self._keys = 0

    def has(self, count: int) -> bool:
        """Whether so many items lie above the last mark."""
        return len(self.stack) - (self.marks[-1] if self.marks else 0) >= count

    def cut(self) -> list[int]:
        """Take everything above the last mark, and the mark."""
        at = self.marks.pop()
        taken = self.stack[at:]
        del self.stack[at:]
        return taken

    def hash(self, cost: int) -> None:
        """A key is hashed and compared."""
        if cost < 0:
            cost = -cost
        else:
            self._keys += 1
            self._budget -= self._keys
        self._budget -= cost
        if cost > MAX_KEY or self._budget < 0:
            raise PayloadError("MemoryError", "the pickle has keys that are too large, or too many of them")

    def store(self, index: int) -> bool:
        """Remember the top of the stack."""
        if index > self.memo_limit:
            raise PayloadError("MemoryError", f"memo index {index} in a pickle that cannot fill it")
        if not self.has(1):
            return False
        self.memo[index] = self.stack[-1]
        return True

    def recall(self, index: int) -> bool:
        """Push what was remembered."""
        cost = self.memo.get(index)
        if cost is None:
            return False
        self.stack.append(cost)
        return True


Handler = Callable[[_Machine, bytes, int, int], bool]
"""What one operation does to the machine, given the data and where its argument lies; False where the unpickler stops
with an error of its own."""


def _push(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    machine.stack.append(1)
    return True


def _string(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    machine.stack.append(-1 - (end - start) // _STRING_CHUNK)
    return True


def _number(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    machine.stack.append(1 + (end - start) // _STRING_CHUNK)
    return True


def _nothing(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    return True


def _mark(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    machine.marks.append(len(machine.stack))
    return True


def _pop(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
        return True
    if not machine.has(1):
        return False
    machine.stack.pop()
    return True


def _pop_mark(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    if not machine.marks:
        return False
    machine.cut()
    return True


def _dup(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    if not machine.has(1):
        return False
    machine.stack.append(machine.stack[-1])
    return True


def _tuple_of(count: int, machine: _Machine, data: bytes, start: int, end: int) -> bool:
    if not machine.has(count):
        return False
    parts = machine.stack[-count:]
    del machine.stack[-count:]
    machine.stack.append(_sum(parts))
    return True


def _tuple_of_one(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    stack = machine.stack
    if not machine.has(1):
        return False
    stack[-1] = min(1 + abs(stack[-1]), _ENDLESS)
    return True


def _tuple(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    if not machine.marks:
        return False
    machine.stack.append(_sum(machine.cut()))
    return True


def _sum(parts: list[int]) -> int:
    return min(1 + sum(map(abs, parts)), _ENDLESS)


def _frozenset(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    if not machine.marks:
        return False
    parts = machine.cut()
    for part in parts:
        machine.hash(part)
    machine.stack.append(_sum(parts))
    return True


def _collect(keys: slice | None, onto: bool, machine: _Machine, data: bytes, start: int, end: int) -> bool:
    """LIST, DICT and what adds many items. `keys` are the items that are hashed; `onto`: to an object below the
    mark."""
    if not machine.marks:
        return False
    parts = machine.cut()
    if keys is not None:
        for part in parts[keys]:
            machine.hash(part)
    if onto:
        return machine.has(1)
    machine.stack.append(1)
    return True


def _take(count: int, made: int | None, machine: _Machine, data: bytes, start: int, end: int) -> bool:
    """Take `count` items off; push what was made of them."""
    if not machine.has(count + (made is None)):
        return False
    del machine.stack[-count:]
    if made is not None:
        machine.stack.append(made)
    return True


def _append(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    if not machine.has(2):
        return False
    machine.stack.pop()
    return True


def _setitem(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    if not machine.has(3):
        return False
    machine.hash(machine.stack[-2])
    del machine.stack[-2:]
    return True


def _instance(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    if not machine.marks:
        return False
    machine.cut()
    machine.stack.append(_ENDLESS)
    return True


def _text_index(data: bytes, start: int, end: int) -> int:
    """The decimal index of GET and PUT. C also takes signs, spaces and underscores; no pickler writes them."""
    digits = data[start : end - 1]
    if not digits.isdigit():
        shown = data[start : min(end, start + 40)].decode("latin-1")
        raise PayloadError("ValueError", f"invalid literal for int() with base 10: {shown!r}")
    return int(digits.lstrip(b"0")[:20] or b"0")


def _put(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    return machine.store(_text_index(data, start, end))


def _get(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    return machine.recall(_text_index(data, start, end))


def _binput(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    return machine.store(int.from_bytes(data[start:end], "little"))


def _binget(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    return machine.recall(int.from_bytes(data[start:end], "little"))


def _memoize(machine: _Machine, data: bytes, start: int, end: int) -> bool:
    return machine.store(len(machine.memo))


_KEYS, _EVERY = slice(0, None, 2), slice(None)
_STRINGS = (
    "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8",
)  # fmt: skip
_NAMED: dict[str, Handler] = {
    **dict.fromkeys(_STRINGS, _string),
    **dict.fromkeys(("INT", "LONG", "LONG1", "LONG4"), _number),
    **dict.fromkeys(("PROTO", "FRAME", "READONLY_BUFFER"), _nothing),
    "MARK": _mark,
    "POP": _pop,
    "POP_MARK": _pop_mark,
    "DUP": _dup,
    "TUPLE1": _tuple_of_one,
    "TUPLE2": partial(_tuple_of, 2),
    "TUPLE3": partial(_tuple_of, 3),
    "TUPLE": _tuple,
    "FROZENSET": _frozenset,
    "LIST": partial(_collect, None, False),
    "DICT": partial(_collect, _KEYS, False),
    "APPENDS": partial(_collect, None, True),
    "SETITEMS": partial(_collect, _KEYS, True),
    "ADDITEMS": partial(_collect, _EVERY, True),
    "APPEND": _append,
    "BUILD": _append,
    "SETITEM": _setitem,
    "STACK_GLOBAL": partial(_take, 2, 1),
    "REDUCE": partial(_take, 2, _ENDLESS),
    "NEWOBJ": partial(_take, 2, _ENDLESS),
    "NEWOBJ_EX": partial(_take, 3, _ENDLESS),
    "BINPERSID": partial(_take, 1, _ENDLESS),
    "OBJ": _instance,
    "INST": _instance,
    "PUT": _put,
    "GET": _get,
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _binput),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _binget),
    "MEMOIZE": _memoize,
}
_TABLE: list[tuple[int, Handler]] = [(_LAST, _push)] * 256
"""By opcode: bytes of its argument (pickletools writes what is variable as a negative number), and what it does."""
for _op in pickletools.opcodes:
    if _op.name != "STOP":
        _TABLE[ord(_op.code)] = (_op.arg.n if _op.arg else 0, _NAMED.get(_op.name, _push))
_COUNTED = frozenset(_CODES[name] for name in ("BINBYTES", "BINBYTES8", "BYTEARRAY8"))
