from __future__ import annotations

import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import history_files
from harness.errors import MalformedHistory
from harness.history_files import read_history, read_records, write_records
from tests.harness.toys import fact, trace


@pytest.mark.parametrize("name", ["h.jsonl", "h.jsonl.xz"])
def test_what_is_written_is_read_back(tmp_path, name):
    records = trace(fact("flush", t=1.5, ok=True), fact("load", rank=1))
    write_records(tmp_path / name, records)
    assert read_records(tmp_path / name) == records
    assert [n.name for n in read_history(tmp_path / name).facts()] == ["flush", "load"]


def good(tmp_path):
    path = tmp_path / "h.jsonl"
    write_records(path, trace(fact("flush"), fact("load")))
    return path


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"kind": "nothing"}',
        b'{"kind": "fact", "source": "core"}',
        b'{"kind": "fact", "source": "nobody", "name": "x"}',
        b'{"kind": "invoke", "call": "one", "origin": "sut", "op": "x"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"kind": "invoke", "call": 1, "origin": "sut", "op": "x", "request": ' + b"[" * 100_000,
    ],
)
def test_a_malformed_line_is_named_by_file_and_number(tmp_path, line):
    path = good(tmp_path)
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(MalformedHistory) as told:
        read_history(path)
    assert str(told.value).startswith(f"{path}:4: ")
    assert "\n" not in str(told.value)
    assert told.value.exit_code == 4


def test_a_file_must_begin_with_a_header(tmp_path):
    path = good(tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(MalformedHistory, match=":1: the first record must be a header"):
        read_history(path)


def test_an_unknown_schema_is_refused(tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_text('{"kind": "header", "seq": 1, "schema": 99}\n')
    with pytest.raises(MalformedHistory, match="schema 99"):
        read_history(path)


def test_an_empty_file_a_missing_file_and_a_folder_are_refused_in_one_line(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    for name, told in (("empty.jsonl", "empty"), ("none.jsonl", "No such file"), ("", "directory")):
        with pytest.raises(MalformedHistory, match=told):
            read_history(tmp_path / name)


@pytest.mark.parametrize(("limit", "value"), [("MAX_LINE", 100), ("MAX_BYTES", 300), ("MAX_RECORDS", 2)])
def test_sizes_are_bounded(tmp_path, monkeypatch, limit, value):
    path = tmp_path / "h.jsonl.xz"
    write_records(path, trace(*(fact("flush", t=float(i), text="x" * 60) for i in range(5))))
    read_history(path)
    monkeypatch.setattr(history_files, limit, value)
    with pytest.raises(MalformedHistory, match=str(value)):
        read_history(path)


def test_a_bomb_is_not_inflated(tmp_path, monkeypatch):
    monkeypatch.setattr(history_files, "MAX_LINE", 1 << 16)
    path = tmp_path / "bomb.xz"
    path.write_bytes(lzma.compress(b"\0" * (64 << 20)))
    with pytest.raises(MalformedHistory, match="longer than"):
        read_history(path)


def test_a_stream_that_asks_for_too_much_memory_is_refused(tmp_path):
    path = tmp_path / "greedy.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 512 << 20}]
    path.write_bytes(lzma.compress(b"x", format=lzma.FORMAT_XZ, filters=filters))
    with pytest.raises(MalformedHistory, match="emory usage limit"):
        read_history(path)


def test_a_torn_xz_is_refused(tmp_path):
    path = tmp_path / "h.jsonl.xz"
    write_records(path, trace(fact("flush")))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(MalformedHistory, match="not a whole"):
        read_history(path)


@given(st.binary(max_size=200))
def test_no_bytes_give_anything_but_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("h") / "h.jsonl"
    path.write_bytes(data)
    with pytest.raises(MalformedHistory):
        read_history(path)
