"""Calls of Python's containers and numbers in a payload: what they give, what they cost, what is refused."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

from fakes.engine.containers import BUILTINS, COLLECTIONS, Budget, check_codec
from fakes.engine.pickle_limits import MAX_KEY
from fakes.engine.tensors import PayloadError, Storage, Tensor, dtype_named


def call(name: str, *args: Any, left: int = 10_000) -> tuple[Any, int]:
    """What the call gives, and what it cost."""
    budget = Budget(left)
    return budget.function(name)(*args), left - budget.left


@pytest.mark.parametrize(
    ("name", "args", "wanted", "cost"),
    [
        ("bool", (), False, 0),
        ("bool", (True,), True, 1),
        ("int", (5,), 5, 1),
        ("int", (2**511,), 2**511, 2),
        ("int", (2**510,), 2**510, 1),
        ("int", ("12",), 12, 2),
        ("int", ("ff", 16), 255, 3),
        ("float", ("1.5",), 1.5, 3),
        ("float", (2,), 2.0, 1),
        ("complex", (1, 2.0), 1 + 2j, 2),
        ("slice", (1, None, 3), slice(1, None, 3), 3),
        ("range", (3,), range(3), 1),
        ("range", (1, 10, 2), range(1, 10, 2), 3),
        ("range", (2**63 - 1,), range(2**63 - 1), 1),
        ("str", (), "", 0),
        ("str", (b"abc", "utf8"), "abc", 7),
        ("str", (b"abc", "LATIN1", "ignore"), "abc", 15),
        ("bytes", (5,), b"\0" * 5, 5),
        ("bytes", ([1, 2, 3],), b"\1\2\3", 3),
        ("bytes", ("ab", "ascii"), b"ab", 7),
        ("bytes", ("ab", "ascii", "strict"), b"ab", 13),
        ("bytearray", (b"ab",), bytearray(b"ab"), 2),
        ("list", ((1, 2),), [1, 2], 2),
        ("list", (range(7),), list(range(7)), 7),
        ("tuple", ([1],), (1,), 1),
        ("deque", ([1, 2, 3], 2), collections.deque([2, 3], 2), 4),
        ("set", ([1, "a"],), {1, "a"}, 2 + 2 + 1),
        ("set", ([1, 2, 3],), {1, 2, 3}, 3 + (1 + 1) + (1 + 2) + (1 + 3)),
        ("set", (["x" * 64, "y" * 63],), {"x" * 64, "y" * 63}, 2 + 2 + 1),
        ("frozenset", ([(1, 2)],), frozenset({(1, 2)}), 1 + (1 + 2 + 1 + 1) + 1),
        ("Counter", ("aab",), collections.Counter("aab"), 3 + 3),
        ("dict", ({"a": 1},), {"a": 1}, 1 + 1),
        ("dict", ([("a", 1)],), {"a": 1}, 1 + 2 + 1),
        ("dict", ([["a", 1], ["b", 2]],), {"a": 1, "b": 2}, 2 + 2 * 3),
        ("OrderedDict", ([("a", 1)],), collections.OrderedDict(a=1), 1 + 2 + 1),
        ("defaultdict", (None, {"a": 1}), collections.defaultdict(None, a=1), 1 + 1 + 1),
    ],
)
def test_what_a_call_gives_and_costs(name: str, args: tuple[Any, ...], wanted: Any, cost: int) -> None:
    found, spent = call(name, *args)
    assert (found, spent) == (wanted, cost)
    assert isinstance(found, type(wanted))
    assert call(name, *args, left=cost) == (wanted, cost)
    if cost:
        with pytest.raises(PayloadError) as error:
            call(name, *args, left=cost - 1)
        assert (error.value.type, error.value.message) == (
            "MemoryError",
            "the pickle builds more than a payload may hold",
        )


@pytest.mark.parametrize(
    ("name", "args", "kind", "words"),
    [
        ("int", ([],), "TypeError", "int() argument cannot be 'list' in a payload"),
        ("float", (1, {}), "TypeError", "float() argument cannot be 'dict' in a payload"),
        ("range", (2**63,), "MemoryError", "range() of a number of more than 63 bits"),
        ("range", (0, 3, -(2**63)), "MemoryError", "range() of a number of more than 63 bits"),
        ("str", (b"x", "idna"), "LookupError", "unknown encoding: idna"),
        ("str", (b"x", "utf8", "surrogateescape"), "LookupError", "unknown error handler name"),
        ("str", (b"x", None), "LookupError", "unknown encoding: NoneType"),
        ("str", (b"x", []), "TypeError", "str() argument cannot be 'list' in a payload"),
        ("bytes", ("x", "idna"), "LookupError", "unknown encoding: idna"),
        ("bytes", ("x", "ascii", "bogus"), "LookupError", "unknown error handler name"),
        ("bytes", ("x", []), "TypeError", "bytes() argument cannot be 'list' in a payload"),
        ("dict", (["ab"],), "TypeError", "cannot convert dictionary update sequence element #0 to a sequence"),
        (
            "dict",
            ([("a", 1), {"b": 2}],),
            "TypeError",
            "cannot convert dictionary update sequence element #1 to a sequence",
        ),
        ("set", ([("x",) * MAX_KEY],), "MemoryError", "the pickle has keys that are too large"),
        ("set", (["x" * 64 * MAX_KEY],), "MemoryError", "the pickle has keys that are too large"),
    ],
)
def test_what_is_refused(name: str, args: tuple[Any, ...], kind: str, words: str) -> None:
    with pytest.raises(PayloadError) as error:
        call(name, *args, left=1 << 30)
    assert (error.value.type, error.value.message) == (kind, words)


@pytest.mark.parametrize(
    ("name", "args", "kind", "words"),
    [
        ("bytes", (-5,), ValueError, "negative count"),
        ("dict", ([()],), ValueError, "has length 0; 2 is required"),
        ("dict", (5,), TypeError, "'int' object is not iterable"),
        ("int", ("x",), ValueError, "invalid literal"),
        ("range", (1.5,), TypeError, "'float' object cannot be interpreted as an integer"),
        ("str", (b"x", "utf8", "strict", 1), TypeError, "at most 3 arguments"),
        ("bytes", ("x", "ascii", "strict", 1), TypeError, "at most 3 arguments"),
    ],
)
def test_python_says_the_rest(name: str, args: tuple[Any, ...], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call(name, *args)


def test_a_negative_length_costs_as_much() -> None:
    with pytest.raises(PayloadError):
        call("bytes", -5, left=4)


def test_a_factory_is_never_called() -> None:
    """pickle's defaultdict(list) must not make lists on demand here."""
    made, _ = call("defaultdict", list, {"a": 1})
    assert made.default_factory is None
    assert dict(made) == {"a": 1}


@pytest.mark.parametrize("name", ["OrderedDict", "Counter"])
def test_containers_take_no_attributes(name: str) -> None:
    made, _ = call(name)
    made.__setstate__({"evil": 1})
    assert not hasattr(made, "evil")


def test_the_names_are_those_of_sglangs_list() -> None:
    """utils/common.py:3144@0.5.23, and what the budget adds for older lists."""
    assert frozenset({"Counter", "OrderedDict", "defaultdict", "deque"}) == COLLECTIONS
    wanted = "bool int float complex slice range str bytes bytearray list tuple set frozenset dict"
    assert frozenset(wanted.split()) == BUILTINS


@pytest.mark.parametrize("encoding", ["latin1", "latin-1", "utf-8", "UTF8", "ascii"])
@pytest.mark.parametrize("errors", ["strict", "ignore", "replace"])
def test_codecs(encoding: str, errors: str) -> None:
    check_codec(encoding, errors)
    check_codec()
    check_codec(encoding)


def test_a_long_codec_is_quoted_in_part() -> None:
    with pytest.raises(PayloadError) as error:
        check_codec("z" * 99)
    assert error.value.message == "unknown encoding: " + "z" * 40
    with pytest.raises(PayloadError) as error:
        check_codec("ascii", 5)
    assert error.value.message == "unknown error handler name"


def test_keys_that_are_no_text_cost_more_each_time() -> None:
    """Hashes may collide: n keys can cost n comparisons each."""
    budget = Budget(100)
    for cost in (2, 3, 4):
        before = budget.left
        budget.hash(7)
        assert before - budget.left == cost
    before = budget.left
    budget.hash("seven")
    assert before - budget.left == 1


def test_the_values_of_numpy_are_no_atoms() -> None:
    with pytest.raises(PayloadError):
        call("int", np.int64(3))


@pytest.mark.parametrize("kind", [tuple, frozenset])
def test_how_large_a_key_may_be(kind: type) -> None:
    """One unit for the key, and two for each of its parts: 999 are taken, 1001 are not."""
    parts = [chr(1000 + n) for n in range(500)]
    Budget(10_000).hash(kind(parts[:499]))
    with pytest.raises(PayloadError):
        Budget(10_000).hash(kind(parts))
    Budget(10_000).hash("x" * 64 * (MAX_KEY - 1))
    for many in (("x",) * (MAX_KEY - 1), (("x",),) * (MAX_KEY - 1)):
        with pytest.raises(PayloadError):
            Budget(10_000).hash(many)


def test_a_tensor_costs_its_rows() -> None:
    """list(tensor) makes as many tensors as it has rows; its elements are no keys that could collide."""
    dtype = dtype_named("uint8")
    assert dtype is not None
    tensor = Tensor(Storage(np.zeros(6, np.uint8)), dtype, 0, (3, 2), (2, 1))
    for name in ("list", "set"):
        made, cost = call(name, tensor)
        assert (len(made), cost) == (3, 3)
    budget = Budget(5)
    with pytest.raises(TypeError, match="0-d tensor"):
        budget.function("list")(Tensor(tensor.storage, dtype, 0, (), ()))
    assert budget.left == 5
