"""Whatever a pickle is built of, opening it takes bounded time and memory."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.engine import pickle_limits
from fakes.engine.allowlist import EXACT202
from fakes.engine.payload import open_payload
from fakes.engine.pickle_limits import check_limits, check_torch_file
from fakes.engine.tensors import PayloadError
from tests.fakes.engine.data import hostile

ROOT = Path(__file__).parents[4]


def test_every_bomb_in_every_place_is_refused_or_harmless():
    """In a process of its own, since a missing limit would hang it with the interpreter's lock held, or end it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fakes.engine.data.hostile"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "all opened or refused\n"), done.stderr[-300:]


KEY = "keys that are too large"


@pytest.mark.parametrize(
    "data",
    [
        b"}" + hostile.doubling(60) + b"Ns",
        b"}(" + hostile.doubling(60) + b"Nu",
        b"(" + hostile.doubling(60) + b"Nd",
        b"(" + hostile.doubling(60) + b"\x91",
        b"\x8f(" + hostile.doubling(60) + b"\x90",
        b"}N" + b"\x85" * 2000 + b"Ns",
        b"}" + b"(" + b"N" * 2000 + b"tNs",
        b"}" + hostile.name("builtins", "tuple") + b"]\x85RNs",
        b"}" + hostile.name("torch", "Size") + b")\x81Ns",
        b"}" + hostile.name("torch", "Size") + b"))\x92Ns",
        b"}(" + hostile.name("torch", "Size") + b"oNs",
        b"}(itorch\nSize\nNs",
        b"}" + hostile.text("x" * 70_000) + b"Ns",
        b"}" + hostile.long(1 << 600_000) + b"Ns",
        b"ctorch._utils\n_rebuild_tensor_v2\n0}" + hostile.doubling(60) + b"Ns",
        b"(itorch\nDevice\n0}" + hostile.doubling(60) + b"Ns",
    ],
)
def test_a_key_may_not_be_large(data):
    with pytest.raises(PayloadError, match=KEY) as error:
        check_limits(hostile.START + data + b".")
    assert error.value.type == "MemoryError"


def test_twenty_levels_are_nothing_where_nobody_hashes_them():
    data = hostile.START + b"](" + hostile.doubling(60) + b"e."
    assert check_limits(data) == len(data)


@pytest.mark.parametrize(("count", "refused"), [(9000, False), (12_000, True)])
def test_keys_that_are_no_strings_are_paid_by_their_number(count, refused):
    data = pickle.dumps(dict.fromkeys(range(count)))
    if not refused:
        assert check_limits(data) == len(data)
        return
    with pytest.raises(PayloadError, match="too many of them"):
        check_limits(data)
    assert check_limits(pickle.dumps(dict.fromkeys(map(str, range(count)))))


@pytest.mark.parametrize(
    ("data", "checked"),
    [
        (b"\x80\x04N.rest", 4),
        (b"\x80\x04\xffN.", 3),
        (b"\x80\x04h\x05N.", 4),
        (b"\x80\x040N.", 3),
        (b"\x80\x041N.", 3),
        (b"\x80\x042N.", 3),
        (b"\x80\x04q\x01N.", 4),
        (b"\x80\x04\x94N.", 3),
        (b"\x80\x04N\x86N.", 4),
        (b"\x80\x04N(\x85N.", 5),
        (b"\x80\x04Nb.", 4),
        (b"\x80\x04]a.", 4),
        (b"\x80\x04}Ns.", 5),
        (b"\x80\x04}u.", 4),
        (b"\x80\x04t.", 3),
        (b"\x80\x04\x91.", 3),
        (b"\x80\x04(e.", 4),
        (b"\x80\x04NR.", 4),
        (b"\x80\x04N\x93.", 4),
        (b"\x80\x04N\x81.", 4),
        (b"\x80\x04NN\x92.", 5),
        (b"\x80\x04o.", 3),
        (b"\x80\x04Q.", 3),
        (b"\x80\x04\x8e" + b"\x00\x00\x00\x00\x00\x01\x00\x00N.", 3),
        (b"\x80\x04X\xff\x00\x00\x00N.", 9),
        (b"\x80\x04ctorch\nSize", 3),
        (b"Np2000000000", 2),
        (b"Ng1", 2),
        (b"NI12", 2),
    ],
)
def test_the_unpickler_never_sees_what_was_not_checked(data, checked):
    """What stops it comes last, and it says itself what it is."""
    assert check_limits(data) == checked


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x04\xffN.", r"invalid load key, '\\xff'"),
        (b"\x80\x04ctorch\nSize\n\xffN.", r"invalid load key, '\\xff'"),
        (b"\x80\x04N0\xffN.", r"invalid load key, '\\xff'"),
        (b"hello world", r"Memo value not found at index 101"),
        (b"\x80\x04\x8e" + b"\x00\x00\x00\x00\x00\x01\x00\x00N.", "pickle data was truncated"),
        (b"\x80\x04\x96" + b"\x00\x00\x00\x00\x00\x01\x00\x00N.", "pickle data was truncated"),
        (b"\x80\x04garbage", "pickle data was truncated"),
        (b"Np2000000000", "pickle data was truncated"),
        (b"\x80\x040N.", "unpickling stack underflow"),
        (b"\x80\x04N(\x85N.", "unexpected MARK found"),
        (b"\x80\x04h\x05N.", "Memo value not found at index 5"),
    ],
)
def test_what_is_no_pickle_gets_the_unpicklers_own_words(data, message):
    from tests.fakes.engine.data.test_payload_hostile import load

    with pytest.raises(PayloadError, match=message) as error:
        load(data)
    assert error.value.type == "_pickle.UnpicklingError"


@pytest.mark.parametrize("index", [b"+5", b"-5", b" 5", b"5 ", b"1_0", b"0x5", b"5\0", b"", b"\xd9\xa5"])
@pytest.mark.parametrize("op", [b"p", b"g"])
def test_a_memo_index_in_text_is_plain_digits(op, index):
    with pytest.raises(PayloadError) as error:
        check_limits(b"Np5\n" + op + index + b"\n.")
    assert error.value.type == "ValueError"


def test_leading_zeros_hide_no_memo_index():
    assert check_limits(b"Np" + b"0" * 40 + b"3\n.") == 45
    with pytest.raises(PayloadError, match="memo index 2000000000"):
        check_limits(b"Np" + b"0" * 25 + b"2000000000\n.")


def test_a_memo_index_is_bounded_in_large_pickles_too(monkeypatch):
    monkeypatch.setattr(pickle_limits, "MAX_OPS", 100)
    data = hostile.text("x" * 1000)
    assert check_limits(data + b"q\x64.")
    with pytest.raises(PayloadError, match="memo index 101"):
        check_limits(data + b"q\x65.")


def test_operations_are_bounded(monkeypatch):
    monkeypatch.setattr(pickle_limits, "MAX_OPS", 10)
    assert check_limits(b"N0" * 4 + b"N.") == 10
    with pytest.raises(PayloadError, match="more than 10 operations"):
        check_limits(b"N0" * 5 + b"N.")


def test_a_file_of_torch_is_checked_inside():
    import io
    import zipfile

    bomb = hostile.START + b"}" + hostile.doubling(60) + b"Ns."
    whole = pickle.dumps(1)
    check_torch_file(whole * 6)
    for number in range(5):
        with pytest.raises(PayloadError, match=KEY):
            check_torch_file(whole * number + bomb)
    for member, refused in (("archive/data.pkl", True), ("archive/data/0", False)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(member, bomb)
        if refused:
            with pytest.raises(PayloadError, match=KEY):
                check_torch_file(file.getvalue())
        else:
            check_torch_file(file.getvalue())


def test_an_archive_may_not_unpack_to_more_than_a_payload(monkeypatch):
    import io
    import zipfile

    monkeypatch.setattr(pickle_limits, "MAX_ARCHIVE", 100)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", b"\0" * 101)
    with pytest.raises(PayloadError, match="archive of more than"):
        check_torch_file(file.getvalue())


def keys(n):
    return b"}(" + b"".join(b"X\x04\0\0\0%04dN" % i for i in range(n)) + b"u."


SHAPES = {
    "lists in lists": lambda n: b"]" * n + b"a" * (n - 1) + b".",
    "tuples in tuples": lambda n: b"N" + b"\x85" * n + b".",
    "marks": lambda n: b"(" * n + b".",
    "marks that are popped": lambda n: b"N" + b"(" * n + b"1" * n + b".",
    "one list that refers to itself": lambda n: b"\x80\x04]\x94" + b"(h\x00h\x00e" * n + b".",
    "lists of the memo": lambda n: b"\x80\x04" + b"]\x94(h\x00h\x00e" * n + b".",
    "copies of the top": lambda n: b"]" + b"2" * n + b"0" * n + b".",
    "keys": keys,
    "names": lambda n: b"cbuiltins\nlist\n0" * n + b"N.",
    "calls": lambda n: b"cbuiltins\nlist\n)R0" * n + b"N.",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_as_long_a_pickle_costs_at_most_twice_as_many_steps(shape):
    def steps(n):
        count = 0

        def line(frame, event, argument):
            nonlocal count
            count += 1
            return line

        before = sys.gettrace()
        sys.settrace(line)
        try:
            open_payload(SHAPES[shape](n), profile_allow=EXACT202, rank=0, load_format=None, resolver=None)
        except PayloadError:
            pass
        finally:
            sys.settrace(before)
        return count

    once, twice = steps(400), steps(800)
    assert once < 30 * len(SHAPES[shape](400)) + 500
    assert twice - once < 1.05 * once
