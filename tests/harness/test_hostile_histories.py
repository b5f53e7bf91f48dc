"""`refitcheck judge` of files that somebody else wrote, or broke: a verdict, or one line and exit code 4."""

from __future__ import annotations

import json
import lzma
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import history_files
from harness.cli import invoke
from harness.errors import MalformedHistory
from harness.history_files import read_records
from harness.runner import Runner
from harness.settings import Settings
from harness.units import Unit

HEADER = {"kind": "header", "seq": 1, "lane": "fake", "engine_version": "0.5.23"}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def judge(tmp_path, capsys):
    def run(data, name="h.jsonl"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else lines(data))
        code = invoke(("judge", str(path)))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err.replace(str(path), "FILE")

    return run


def lines(records):
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def fact(name, data, **more):
    return {"kind": "fact", "seq": 2, "source": "harness", "name": name, "data": data, **more}


def marks(**start):
    """The marks of a refit that succeeds."""
    return [fact("refit", {"phase": "start", **start}), fact("refit", {"phase": "end", **start, "ok": True}, seq=3)]


@pytest.mark.parametrize(
    "records",
    [
        [fact("refit", {})],
        [fact("refit", {"index": [1], "phase": "start"})],
        [fact("refit", {"index": {}, "phase": "end"})],
        [*marks(index=0)[:1], fact("refit", {"phase": "end", "index": 0}, seq=3)],
    ],
)
def test_facts_that_a_judge_cannot_read_are_one_line_that_names_the_record(judge, records):
    code, out, err = judge([HEADER, *records])
    assert (code, out) == (4, "")
    assert err.startswith("refitcheck: FILE: record ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("epoch", ["1" + "0" * 400, "1e300", '"x"', "true", "[" + "1," * 999 + "1]", "-1e400"])
def test_an_epoch_that_is_no_time_is_one_line(judge, epoch):
    header = b'{"kind":"header","seq":1,"meta":{"epoch":%s}}\n' % epoch.encode()
    code, _, err = judge(header)
    assert code == 4
    assert err.count("\n") == 1
    assert len(err) < 300


def test_what_steers_a_terminal_is_escaped_and_what_is_long_is_cut(judge):
    code, _, err = judge([HEADER, {"kind": "\x1b[31m\x07" + "z" * 100_000}])
    assert code == 4
    assert "\x1b" not in err
    assert "\\x1b[31m" in err
    assert len(err) < 500
    header = {"kind": "header", "seq": 1, "lane": "\x1b[2J\u202e[red]", "engine_version": ""}
    code, out, _ = judge([header])
    assert code == 2
    assert "\\x1b[2J\\u202e[red]" in out


def test_blank_lines_do_not_hide_what_comes_after_them(judge, monkeypatch):
    monkeypatch.setattr(history_files, "MAX_RECORDS", 10)
    code, _, err = judge(lines([HEADER]) + b"\n" * 11 + b"garbage\n")
    assert (code, err) == (4, "refitcheck: FILE:12: more than 10 records\n")
    assert judge(lines([HEADER]) + b"\n" * 10)[0] == 2


def packed(data, **filters):
    return lzma.compress(data, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, **filters}])


def hungry(data):
    """An .xz stream whose header asks for a dictionary of 4 GiB - 1."""
    whole = bytearray(packed(data))
    size = (whole[12] + 1) * 4
    head = whole[12 : 12 + size - 4]
    head[head.index(0x21) + 2] = 40
    import zlib

    whole[12 : 12 + size] = bytes(head) + zlib.crc32(bytes(head)).to_bytes(4, "little")
    return bytes(whole)


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_no_stream_of_an_xz_file_gets_more_memory_than_allowed(judge, streams):
    data = lines([HEADER])
    code, _, err = judge(b"".join([packed(data)] + [packed(b"\n")] * (streams - 1))[:None] + hungry(b"\n"), "h.xz")
    assert (code, err) == (4, "refitcheck: FILE: not a whole .xz file (Memory usage limit exceeded)\n")


def test_streams_of_one_file_are_read_one_after_another(tmp_path):
    path = tmp_path / "h.jsonl.xz"
    note = msgspec.json.encode(fact("state", {"a": 1})) + b"\n"
    path.write_bytes(packed(lines([HEADER])) + b"\0" * 8 + packed(note) + packed(b"") + packed(b"\n"))
    assert len(read_records(path)) == 2
    path.write_bytes(packed(lines([HEADER])) + packed(note)[:-3])
    with pytest.raises(MalformedHistory, match="not a whole"):
        read_records(path)
    path.write_bytes(packed(lines([HEADER])) + b"garbage")
    with pytest.raises(MalformedHistory, match="not a whole"):
        read_records(path)


def test_a_second_stream_that_asks_for_four_gigabytes_does_not_get_them(tmp_path):
    path = tmp_path / "h.jsonl.xz"
    path.write_bytes(packed(lines([HEADER])) + hungry(b"\n"))

    def bounded():
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

    command = [
        sys.executable,
        "-c",
        "import sys; from harness.history_files import read_records; "
        "from pathlib import Path\ntry: read_records(Path(sys.argv[1]))\nexcept Exception as e: print(type(e))",
    ]
    done = subprocess.run(
        [*command, str(path)], preexec_fn=bounded, capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert "MalformedHistory" in done.stdout


@pytest.fixture(scope="module")
def good():
    """A history of the reference client, as plain JSON values."""
    kept = []
    runner = Runner(Settings(scenarios=("refit/envelope/two-refits",), tp=2, exploration="off"))
    runner.on_history = lambda unit, faults, history: kept.extend([history.header, *history.records])
    runner.execute(Unit("refit/envelope/two-refits", "0.5.23", 2, "reference"))
    runner.close()
    return [json.loads(msgspec.json.encode(record, enc_hook=str)) for record in kept]


ODD = st.sampled_from(
    [
        None,
        -1,
        0,
        "x",
        "",
        [],
        {},
        1e300,
        [[1]],
        {"a": 1},
        True,
        "\x00",
        10**18,
        "\ud800".encode("utf-8", "replace").decode(),
    ]
)


@st.composite
def broken(draw, records):
    """A copy of `records` with one to three things changed, dropped, doubled or moved."""
    out = json.loads(json.dumps(records))
    for _ in range(draw(st.integers(1, 3))):
        notes = [i for i, record in enumerate(out) if isinstance(record, dict) and record.get("source") == "harness"]
        at = draw(st.integers(0, len(out) - 1) | st.sampled_from(notes or [0]))
        how = draw(st.sampled_from(["value", "value", "value", "key", "drop", "twice", "move"]))
        if how in ("value", "key"):
            places = list(inside(out[at]))
            holder, key = places[draw(st.integers(0, len(places) - 1))]
            if how == "key" and isinstance(holder, dict):
                del holder[key]
            else:
                holder[key] = draw(ODD)
        elif how == "drop" and len(out) > 1:
            del out[at]
        elif how == "twice":
            out.insert(at, json.loads(json.dumps(out[at])))
        elif how == "move":
            out.insert(draw(st.integers(0, len(out) - 1)), out.pop(at))
    return out


def inside(value):
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(item, dict | list):
            yield from inside(item)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_history_with_something_wrong_in_it_never_breaks_the_harness(good, judge, data):
    code, _, err = judge(lines(data.draw(broken(good))))
    assert code in (0, 1, 2, 4), err
    assert err.count("\n") == (code == 4)
