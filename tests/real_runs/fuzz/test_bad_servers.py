"""`diff --against` something that is no SGLang: one line, exit code 4, before anything is printed."""

from __future__ import annotations

import contextlib
import socket

import httpx
import pytest

from harness.cli import invoke
from tests.real_runs.recording.stage import Stub, reply

SERVER = {"version": "0.5.22", "tp_size": 2, "dtype": "bfloat16", "model_path": "m", "weight_version": "default"}


@pytest.fixture
def stub():
    made = Stub()
    yield made
    made.stop()


@pytest.fixture
def free_port():
    with contextlib.closing(socket.socket()) as held:  # bound but not listening: every connection is refused
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def diff(capsys, *words):
    code = invoke(("diff", *words))
    out, err = capsys.readouterr()
    return code, out, err


ANSWERS = {
    "none": (404, b"<!DOCTYPE html><html>\nnot here", "GET /get_server_info: 404 <!DOCTYPE"),
    "noise": (200, bytes(range(256)), "GET /get_server_info: 200"),
    "deep": (200, b"[" * 100_000, "GET /get_server_info: "),
    "a list": (200, b"[]", "GET /get_server_info: 200"),
    "another server": (200, b"{}", "it does not say what it is: KeyError 'version'"),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("scheme", ["http://", ""])
def test_what_is_no_sglang_is_one_line(capsys, stub, name, scheme):
    status, body, said = ANSWERS[name]
    stub.answer = lambda handler, _: reply(handler, status, body)
    code, out, err = diff(capsys, "--against", f"{scheme}127.0.0.1:{stub.port}")
    assert (code, out, err.count("\n")) == (4, "", 1), err
    assert err.startswith(f"refitcheck: --against http://127.0.0.1:{stub.port}: {said}")


def test_where_nobody_listens_it_is_one_line(capsys, free_port):
    code, out, err = diff(capsys, "--against", f"http://127.0.0.1:{free_port}")
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "Connection refused" in err


def test_a_tape_that_is_none_is_one_line_before_the_server_is_asked(capsys, stub, tmp_path):
    stub.answer = lambda handler, _: reply(handler, 200, httpx.Response(200, json=SERVER).content)
    (tmp_path / "tape").write_text("words\n")
    code, out, err = diff(capsys, "--against", stub.url, "--tape", str(tmp_path / "tape"))
    assert (code, out, err) == (4, "", f"refitcheck: --tape {tmp_path}/tape: line 1 is no sequence of a tape\n")
    assert stub.seen == []
