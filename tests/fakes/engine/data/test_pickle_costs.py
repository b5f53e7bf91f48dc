"""The unpickler's stack of costs, operation by operation, and how far a pickle may be read."""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any

import pytest

from fakes.engine import pickle_limits as limits
from fakes.engine.pickle_limits import MAX_HASHING, MAX_KEY, check_limits, check_torch_file
from fakes.engine.tensors import PayloadError

ENDLESS = 1 << 40


def ran(*ops: str | tuple[str, int], stack: tuple[int, ...] = (), size: int = 100) -> tuple[list[Any], Any]:
    """What each operation said, and the machine after them; (name, n) has an argument of n bytes."""
    machine = limits._Machine(size)
    machine.stack.extend(stack)
    said = []
    for op in ops:
        name, width = op if isinstance(op, tuple) else (op, 0)
        said.append(limits._NAMED.get(name, limits._push)(machine, b"", 100, 100 + width))
    return said, machine


@pytest.mark.parametrize(
    ("ops", "stack"),
    [
        (["NONE"], [1]),
        ([("BINUNICODE", 0)], [-1]),
        ([("BINUNICODE", 63)], [-1]),
        ([("BINUNICODE", 64)], [-2]),
        ([("SHORT_BINBYTES", 200)], [-4]),
        ([("LONG4", 0)], [1]),
        ([("LONG4", 64)], [2]),
        ([("LONG1", 200)], [4]),
        (["PROTO", "FRAME"], []),
        (["NONE", "NONE", "POP"], [1]),
        (["NONE", "MARK", "POP"], [1]),
        (["NONE", "MARK", "NONE", "NONE", "POP_MARK"], [1]),
        ([("LONG1", 64), "DUP"], [2, 2]),
        (["NONE", ("LONG1", 64), "TUPLE1"], [1, 3]),
        (["NONE", ("LONG1", 64), "TUPLE2"], [4]),
        (["NONE", "NONE", ("BINUNICODE", 64), "TUPLE3"], [5]),
        (["NONE", "MARK", "NONE", "NONE", "TUPLE"], [1, 3]),
        (["MARK", "TUPLE"], [1]),
        (["NONE", "MARK", "NONE", "NONE", "FROZENSET"], [1, 3]),
        (["NONE", "MARK", "NONE", "NONE", "LIST"], [1, 1]),
        (["NONE", "MARK", "NONE", "NONE", "DICT"], [1, 1]),
        (["EMPTY_LIST", "MARK", "NONE", "NONE", "APPENDS"], [1]),
        (["EMPTY_DICT", "MARK", "NONE", "NONE", "SETITEMS"], [1]),
        (["EMPTY_SET", "MARK", "NONE", "ADDITEMS"], [1]),
        (["EMPTY_LIST", ("LONG1", 64), "APPEND"], [1]),
        (["EMPTY_DICT", "NONE", "NONE", "SETITEM"], [1]),
        (["NONE", "NONE", "BUILD"], [1]),
        (["NONE", ("BINUNICODE", 9), ("BINUNICODE", 9), "STACK_GLOBAL"], [1, 1]),
        (["NONE", "NONE", "REDUCE"], [ENDLESS]),
        (["NONE", "NONE", "NEWOBJ"], [ENDLESS]),
        (["NONE", "NONE", "NONE", "NONE", "NEWOBJ_EX"], [1, ENDLESS]),
        (["NONE", "BINPERSID"], [ENDLESS]),
        (["NONE", "MARK", "NONE", "NONE", "OBJ"], [1, ENDLESS]),
        (["NONE", "MARK", "NONE", "INST"], [1, ENDLESS]),
        (["NONE", "NONE", "REDUCE", "NONE", "TUPLE2"], [ENDLESS]),
    ],
)
def test_what_lies_on_the_stack(ops: list[Any], stack: list[int]) -> None:
    said, machine = ran(*ops)
    assert said == [True] * len(ops)
    assert (machine.stack, machine.marks) == (stack, [])


@pytest.mark.parametrize(
    "ops",
    [
        ["POP"],
        ["POP_MARK"],
        ["DUP"],
        ["TUPLE1"],
        ["NONE", "TUPLE2"],
        ["NONE", "NONE", "TUPLE3"],
        ["TUPLE"],
        ["FROZENSET"],
        ["LIST"],
        ["DICT"],
        ["MARK", "NONE", "APPENDS"],
        ["APPENDS"],
        ["MARK", "SETITEMS"],
        ["NONE", "APPEND"],
        ["NONE", "BUILD"],
        ["NONE", "NONE", "SETITEM"],
        ["NONE", "STACK_GLOBAL"],
        ["NONE", "REDUCE"],
        ["NONE", "NONE", "NEWOBJ_EX"],
        ["BINPERSID"],
        ["OBJ"],
        ["INST"],
        ["MEMOIZE"],
        ["NONE", "MARK", "DUP"],
        ["NONE", "NONE", "MARK", "TUPLE1"],
        ["NONE", "MARK", "MEMOIZE"],
    ],
)
def test_an_operation_on_too_little_ends_the_reading(ops: list[str]) -> None:
    """There the unpickler raises in its own words; nothing below a mark counts."""
    said, _ = ran(*ops)
    assert said == [True] * (len(ops) - 1) + [False]


@pytest.mark.parametrize(
    ("ops", "keys"),
    [
        (["MARK", "NONE", "INT", "NONE", "INT", "DICT"], 2),
        (["EMPTY_DICT", "MARK", "NONE", "INT", "SETITEMS"], 1),
        (["EMPTY_SET", "MARK", "NONE", "INT", "ADDITEMS"], 2),
        (["MARK", "NONE", "INT", "FROZENSET"], 2),
        (["EMPTY_DICT", "NONE", "NONE", "SETITEM"], 1),
        (["MARK", "NONE", "INT", "LIST"], 0),
        (["EMPTY_LIST", "MARK", "NONE", "INT", "APPENDS"], 0),
        (["EMPTY_DICT", ("BINUNICODE", 3), "NONE", "SETITEM"], 0),
    ],
)
def test_which_operations_hash(ops: list[Any], keys: int) -> None:
    """The n-th key that is no string costs n more."""
    _, machine = ran(*ops)
    assert machine._keys == keys
    strings = sum(isinstance(op, tuple) for op in ops)
    assert MAX_HASHING - machine._budget == sum(1 + n for n in range(1, keys + 1)) + strings


def test_the_key_that_is_hashed_is_the_one_before_the_value() -> None:
    for stack, refused in (((1, MAX_KEY + 1, 1), True), ((1, 1, MAX_KEY + 1), False), ((1, MAX_KEY, 1), False)):
        if refused:
            with pytest.raises(PayloadError):
                ran("SETITEM", stack=stack)
        else:
            assert ran("SETITEM", stack=stack)[1].stack == [1]


@pytest.mark.parametrize(("cost", "refused"), [(MAX_KEY, False), (-MAX_KEY, False), (MAX_KEY + 1, True), (-1001, True)])
def test_how_much_a_key_may_cost(cost: int, refused: bool) -> None:
    machine = limits._Machine(9)
    if not refused:
        machine.hash(cost)
        assert MAX_HASHING - machine._budget == abs(cost) + (cost > 0)
        return
    with pytest.raises(PayloadError) as error:
        machine.hash(cost)
    words = "the pickle has keys that are too large, or too many of them"
    assert (error.value.type, error.value.message) == ("MemoryError", words)


def test_how_much_all_keys_may_cost() -> None:
    machine = limits._Machine(9)
    machine._budget = 5
    machine.hash(-5)
    assert machine._budget == 0
    with pytest.raises(PayloadError):
        machine.hash(-1)
    assert limits._Machine(9).has(0)
    fresh = limits._Machine(9)
    fresh.hash(0)
    assert (fresh._keys, MAX_HASHING - fresh._budget) == (1, 1)


def test_the_memo() -> None:
    said, machine = ran("NONE", "MEMOIZE", ("LONG1", 64), "MEMOIZE")
    assert said == [True] * 4
    assert machine.memo == {0: 1, 1: 2}
    assert machine.recall(1)
    assert machine.stack == [1, 2, 2]
    assert not machine.recall(7)
    assert machine.store(100)
    with pytest.raises(PayloadError) as error:
        machine.store(101)
    words = "memo index 101 in a pickle that cannot fill it"
    assert (error.value.type, error.value.message) == ("MemoryError", words)


def test_a_pop_takes_what_lies_above_the_last_mark_and_then_the_mark() -> None:
    _, machine = ran("MARK", "NONE", "POP")
    assert (machine.stack, machine.marks) == ([], [0])


@pytest.mark.parametrize(
    ("text", "index"),
    [(b"0\n", 0), (b"7\n", 7), (b"00012\n", 12), (b"12345678901234567890123\n", 12345678901234567890)],
)
def test_the_index_of_an_old_memo(text: bytes, index: int) -> None:
    assert limits._text_index(b"xx" + text, 2, 2 + len(text)) == index


@pytest.mark.parametrize(
    ("text", "shown"),
    [(b"x\n", "x\n"), (b"-1\n", "-1\n"), (b"\n", "\n"), (b"y" * 60 + b"\n", "y" * 40), (b"\xe9\n", "é\n")],
)
def test_an_index_that_is_no_number(text: bytes, shown: str) -> None:
    with pytest.raises(PayloadError) as error:
        limits._text_index(b"12" + text, 2, 2 + len(text))
    words = f"invalid literal for int() with base 10: {shown!r}"
    assert (error.value.type, error.value.message) == ("ValueError", words)


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"", 0),
        (b"N.", 2),
        (b"N.rest", 2),
        (b"NN", 2),
        (b"0", 1),
        (b"N00.", 3),
        (b"\xff.", 1),
        (b"cmodule\nname\n.", 14),
        (b"cmodule\nname", 1),
        (b"c\n\n.", 4),
        (b"cmodule", 1),
        (b"I5\ncmodule", 4),
        (b"I5\n.", 4),
        (b"I5", 1),
        (b"(imodule\nname\n.", 15),
        (b"U\x03abc.", 6),
        (b"U\x03ab", 4),
        (b"B\x09\0\0\0ab", 1),
        (b"B\x02\0\0\0ab", 7),
        (b"X\x02\0\0\0ab.", 8),
        (b"X\x09\0\0\0ab", 7),
        (b"\x95\x00", 2),
        (b"Nq\x02h\x02.", 6),
        (b"Nr\x02\0\0\0j\x02\0\0\0.", 12),
        (b"Nq\x02h\x01.", 5),
        (b"Nq\x01j\x02\0\0\0.", 8),
    ],
)
def test_how_far_is_read(data: bytes, end: int) -> None:
    """Up to STOP, to an unknown opcode, to where the unpickler raises; what is cut off is not shown to it."""
    assert check_limits(data) == end


@pytest.mark.parametrize(("data", "index"), [(b"Nq\x09.", 9), (b"Nr\x01\x01\0\0.", 257), (b"Np12\n.", 12)])
def test_a_memo_index_is_read_whole(data: bytes, index: int) -> None:
    with pytest.raises(PayloadError, match=f"memo index {index} in"):
        check_limits(data)


def test_what_pickle_writes_is_read_to_its_end() -> None:
    value = {"a": [1, 2.5, (3, None)], (1, 2): {4, 5}, "b": frozenset({"x"}), "c": b"y" * 300, "d": 2**600}
    for protocol in range(6):
        data = pickle.dumps(value, protocol)
        assert check_limits(data) == len(data)
        assert check_limits(data + b"tail") == len(data)


def test_too_many_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_OPS", 3)
    assert check_limits(b"N0.") == 3
    with pytest.raises(PayloadError) as error:
        check_limits(b"N0N.")
    assert (error.value.type, error.value.message) == ("MemoryError", "a pickle of more than 3 operations")


def archive(**files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as out:
        for name, data in files.items():
            out.writestr(name.replace("_", "."), data)
    return made.getvalue()


BOMB = b"}" + b"X\xd0\xfb\0\0" + b"k" * 64464 + b"N" + b"s."


def test_every_pickle_of_an_archive_is_read_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.save's zip: data.pkl, and storages that are no pickles."""
    check_torch_file(archive(data_pkl=b"N.", data_0=BOMB))
    with pytest.raises(PayloadError):
        check_torch_file(archive(first_pkl=b"N.", data_pkl=BOMB))
    with pytest.raises(PayloadError):
        check_torch_file(archive(first_pkl=BOMB, data_pkl=b"N."))
    monkeypatch.setattr(limits, "MAX_ARCHIVE", 10)
    check_torch_file(archive(data_pkl=b"N.", data_0=b"x" * 8))
    with pytest.raises(PayloadError) as error:
        check_torch_file(archive(data_pkl=b"N.", data_0=b"x" * 9))
    assert (error.value.type, error.value.message) == ("MemoryError", "an archive of more than 10 bytes")


def test_five_pickles_of_the_legacy_format_are_read() -> None:
    check_torch_file(b"N." * 5 + BOMB)
    check_torch_file(bytearray(b"N."))
    for before in range(5):
        with pytest.raises(PayloadError):
            check_torch_file(b"N." * before + BOMB)
