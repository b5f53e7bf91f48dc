"""What a payload may call by the name of a Python container or number, within a budget.

The unpickler's own operations are counted beforehand (`pickle_limits`); a call is not, so everything that it copies,
parses, hashes or compares is paid for here, one unit an element. Nothing is formatted: the text of a shared structure
can be exponentially longer than its pickle.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from fakes.engine.pickle_limits import MAX_KEY
from fakes.engine.tensors import PayloadError, Tensor

CONTAINER_BUDGET = 4_000_000
"""Elements that all calls of one pickle may handle."""

_SEQUENCES = (list, tuple, set, frozenset, dict, collections.deque, str, bytes, bytearray, range)
_ATOMS = (bool, int, float, complex, str, bytes, bytearray, type(None))
_CODECS = ("latin1", "latin-1", "utf-8", "utf8", "ascii")
_ERRORS = ("strict", "ignore", "replace")


class OrderedDict(collections.OrderedDict[Any, Any]):
    """collections.OrderedDict without attributes of its own: each would cost a copy of a shared state."""

    def __setstate__(self, state: object) -> None:
        pass


class Counter(collections.Counter[Any]):
    """collections.Counter, likewise."""

    def __setstate__(self, state: object) -> None:
        pass


class Budget:
    """What the calls of one pickle may still handle."""

    def __init__(self, left: int = CONTAINER_BUDGET) -> None:
        self.left = left
        self._keys = 0

    def spend(self, count: int) -> None:
        """PayloadError MemoryError when nothing is left."""
        self.left -= count
        if self.left < 0:
            raise PayloadError("MemoryError", "the pickle builds more than a payload may hold")

    def function(self, name: str) -> Callable[..., Any]:
        """The container `name`, one of BUILTINS or COLLECTIONS, as something to call."""
        check, make = _RULES[name]

        def call(*args: Any) -> Any:
            check(self, name, args)
            return make(*args)

        return call

    def hash(self, key: Any) -> None:
        """A key is hashed and compared, as in `pickle_limits`: it costs what it is made of, and the n-th that is no
        string costs n."""
        cost, parts = 0, [key]
        while parts:
            part = parts.pop()
            cost += 1 + _atom(part)
            if isinstance(part, tuple | frozenset):
                cost += len(part)
                if cost <= MAX_KEY:
                    parts.extend(part)
            if cost > MAX_KEY:
                raise PayloadError("MemoryError", "the pickle has keys that are too large")
        if not isinstance(key, str):
            self._keys += 1
            cost += self._keys
        self.spend(cost)


def _atom(value: Any) -> int:
    if isinstance(value, str | bytes | bytearray):
        return len(value) // 64
    return value.bit_length() // 512 if isinstance(value, int) else 0


def _size(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.shape[0] if value.shape else 0
    return len(value) if isinstance(value, _SEQUENCES) else 1


def _check_atoms(budget: Budget, name: str, args: tuple[Any, ...]) -> None:
    for value in args:
        if not isinstance(value, _ATOMS):
            raise PayloadError("TypeError", f"{name}() argument cannot be {type(value).__name__!r} in a payload")
        budget.spend(len(value) if isinstance(value, str | bytes | bytearray) else 1 + _atom(value))


def _check_text(budget: Budget, name: str, args: tuple[Any, ...]) -> None:
    _check_atoms(budget, name, args)
    check_codec(*args[1:3])


def _check_bytes(budget: Budget, name: str, args: tuple[Any, ...]) -> None:
    source, rest = args[:1], args[1:]
    for value in source:
        budget.spend(abs(value) if isinstance(value, int) else _size(value))
    _check_atoms(budget, name, rest)
    if rest:
        check_codec(*rest[:2])


def _check_range(budget: Budget, name: str, args: tuple[Any, ...]) -> None:
    _check_atoms(budget, name, args)
    if any(isinstance(value, int) and value.bit_length() > 63 for value in args):
        raise PayloadError("MemoryError", f"{name}() of a number of more than 63 bits")


def _check_sequence(budget: Budget, name: str, args: tuple[Any, ...]) -> None:
    for value in args:
        budget.spend(_size(value))


def _check_keys(budget: Budget, name: str, args: tuple[Any, ...]) -> None:
    for value in args:
        budget.spend(_size(value))
        if isinstance(value, _SEQUENCES):
            for key in value:
                budget.hash(key)


def _check_pairs(budget: Budget, name: str, args: tuple[Any, ...]) -> None:
    for value in args:
        budget.spend(_size(value))
        if not isinstance(value, _SEQUENCES):
            continue
        mapping = isinstance(value, dict)
        for index, item in enumerate(value):
            if mapping:
                budget.hash(item)
            elif isinstance(item, tuple | list):
                budget.spend(len(item))
                if item:
                    budget.hash(item[0])
            else:
                text = f"cannot convert dictionary update sequence element #{index} to a sequence"
                raise PayloadError("TypeError", text)


def check_codec(encoding: Any = "utf-8", errors: Any = "strict") -> None:
    """The codecs that pickles use; others may take quadratic time (idna)."""
    if not isinstance(encoding, str) or encoding.lower() not in _CODECS:
        shown = encoding[:40] if isinstance(encoding, str) else type(encoding).__name__
        raise PayloadError("LookupError", f"unknown encoding: {shown}")
    if not isinstance(errors, str) or errors not in _ERRORS:
        raise PayloadError("LookupError", "unknown error handler name")


def _default_dict(*args: Any) -> collections.defaultdict[Any, Any]:
    return collections.defaultdict(None, *args[1:])


Check = Callable[[Budget, str, tuple[Any, ...]], None]
_RULES: dict[str, tuple[Check, Callable[..., Any]]] = {
    "bool": (_check_atoms, bool),
    "int": (_check_atoms, int),
    "float": (_check_atoms, float),
    "complex": (_check_atoms, complex),
    "slice": (_check_atoms, slice),
    "range": (_check_range, range),
    "str": (_check_text, str),
    "bytes": (_check_bytes, bytes),
    "bytearray": (_check_bytes, bytearray),
    "list": (_check_sequence, list),
    "tuple": (_check_sequence, tuple),
    "deque": (_check_sequence, collections.deque),
    "set": (_check_keys, set),
    "frozenset": (_check_keys, frozenset),
    "Counter": (_check_keys, Counter),
    "dict": (_check_pairs, dict),
    "OrderedDict": (_check_pairs, OrderedDict),
    "defaultdict": (_check_pairs, _default_dict),
}
COLLECTIONS = frozenset({"Counter", "OrderedDict", "defaultdict", "deque"})
BUILTINS = frozenset(_RULES) - COLLECTIONS
