from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager

import httpx
import pytest
import typer
from typer.testing import CliRunner

from harness.history_files import read_history
from real_runs.recording import cli, serving
from real_runs.recording.marks import NOT_JUDGED
from tests.real_runs.recording.stage import Stub, reply

APP = typer.Typer()
APP.command()(cli.record)
SERVER = {"version": "0.5.22", "tp_size": 2, "dtype": "bfloat16", "model_path": "m", "weight_version": "default"}


@pytest.fixture
def stub():
    made = Stub()
    made.answer = lambda handler, body: reply(handler, 200, httpx.Response(200, json=SERVER).content)
    yield made
    made.stop()


@contextmanager
def at_once():
    told = threading.Event()
    told.set()
    yield told


def call(*words, monkeypatch=None):
    if monkeypatch is not None:
        monkeypatch.setattr(cli, "_told", at_once)
    return CliRunner().invoke(APP, [str(word) for word in words])


def test_it_says_where_it_listens_and_where_it_wrote(stub, tmp_path, monkeypatch):
    out = tmp_path / "h.jsonl"
    found = call("--upstream", stub.url, "-o", out, monkeypatch=monkeypatch)

    assert found.exit_code == 0, found.output
    assert f"->  {stub.url}  sglang 0.5.22 tp 2" in found.output
    assert f"1 records in {out}; refitcheck judge {out}" in found.output
    header = read_history(out).header
    assert header.meta["not_judged"] == list(NOT_JUDGED)
    assert (header.engine_version, header.tp, header.lane, header.clock) == ("0.5.22", 2, "recorded", "real")


def test_two_upstreams_are_two_engines_of_the_version_that_was_given(stub, tmp_path, monkeypatch):
    words = ("--upstream", stub.url, "--upstream", "https://x.example:1", "--engine", "0.5.23:4")
    found = call(*words, "--policy", "quarantine", "-o", tmp_path / "h.jsonl", monkeypatch=monkeypatch)

    assert "PAUSE-1" in read_history(tmp_path / "h.jsonl").header.meta["not_judged"]
    assert [line[:2] for line in found.output.splitlines()[:2]] == ["e0", "e1"]
    assert read_history(tmp_path / "h.jsonl").header.tp == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--upstream", "ftp://x"), "give http://HOST:PORT"),
        (("--upstream", "http://127.0.0.1:1"), "Connection refused"),
        (("--upstream", "http://127.0.0.1:1", "--engine", "9.9"), "give VERSION:TP"),
        (("--upstream", "http://127.0.0.1:1", "--engine", "0.5.23:0"), "give VERSION:TP"),
        *(
            (("--upstream", "http://127.0.0.1:1", "--engine", f"0.5.23:{tp}"), "TP from 1 to 1024")
            for tp in ("1025", "9" * 5000, "-1", "x", "\u0662")
        ),
        (("--upstream", "http://127.0.0.1:1", "--policy", "hope"), "give resume, quarantine or terminal"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, words, said):
    found = call(*words, "-o", tmp_path / "h.jsonl")

    assert found.exit_code == 4
    assert said in found.output
    assert len(found.output.splitlines()) == 1
    assert not (tmp_path / "h.jsonl").exists()


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (DEEP, "GET /get_server_info"),
        (b'{"version": "0.5.22", "x": ' + DEEP, "GET /get_server_info"),
        (httpx.Response(200, json={**SERVER, "tp_size": 2000}).content, "says tp 2000: give --engine"),
        (httpx.Response(200, json=SERVER).content.replace(b"2,", b"Infinity,"), "does not say what it is"),
    ],
)
def test_an_upstream_that_answers_garbage_is_one_line(stub, tmp_path, body, said):
    stub.answer = lambda handler, _: reply(handler, 200, body)
    found = call("--upstream", stub.url, "-o", tmp_path / "h.jsonl")

    assert found.exit_code == 4
    assert said in found.output
    assert len(found.output.splitlines()) == 1
    assert not (tmp_path / "h.jsonl").exists()


@pytest.mark.parametrize("taken", [0, 1])
def test_a_port_that_is_taken_is_one_line_that_names_it(stub, tmp_path, taken):
    words = ("--upstream", stub.url, "--upstream", stub.url, "--engine", "0.5.23", "--port", stub.port - taken)
    found = call(*words, "-o", tmp_path / "h.jsonl")

    assert found.exit_code == 4
    assert len(found.output.splitlines()) == 1
    assert "127.0.0.1:" in found.output
    assert taken or f"door e0 cannot listen on 127.0.0.1:{stub.port}: Address already in use" in found.output


def test_there_is_no_port_beyond_the_last(stub, tmp_path):
    words = ("--upstream", stub.url, "--upstream", stub.url, "--engine", "0.5.23", "--port", 65535)
    found = call(*words, "-o", tmp_path / "h.jsonl")

    assert (found.exit_code, len(found.output.splitlines())) == (4, 1)


def test_a_history_is_one_recording(stub, tmp_path):
    (tmp_path / "h.jsonl").write_text("kept")
    found = call("--upstream", stub.url, "--engine", "0.5.23", "-o", tmp_path / "h.jsonl")

    assert (found.exit_code, "is there already" in found.output) == (4, True)
    assert (tmp_path / "h.jsonl").read_text() == "kept"
    assert call("--upstream", stub.url, "--engine", "0.5.23", "-o", tmp_path / "no" / "h").exit_code == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_also_while_its_doors_open_and_the_history_is_whole(tmp_path, monkeypatch, number):
    class Struck(serving.Doors):
        def __init__(self, *words):
            super().__init__(*words)
            signal.raise_signal(number)

    monkeypatch.setattr(serving, "Doors", Struck)
    before = signal.getsignal(number)
    out = tmp_path / "h.jsonl"
    found = call("--upstream", "http://127.0.0.1:1", "--engine", "0.5.23", "-o", out)

    assert found.exit_code == 0, found.output
    assert f"1 records in {out}; refitcheck judge {out}" in found.output
    assert read_history(out).header.engine_version == "0.5.23"
    assert signal.getsignal(number) == before


def test_a_signal_that_an_import_swallowed_is_not_forgotten(monkeypatch):
    monkeypatch.setattr(cli, "came", lambda: True)
    with cli._told() as told:
        assert told.is_set()


def test_a_second_signal_ends_the_process_where_it_is(monkeypatch, capfd):
    ends = []
    monkeypatch.setattr(os, "_exit", ends.append)
    with cli._told() as told:
        assert not told.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert told.is_set()
        assert ends == []
        signal.raise_signal(signal.SIGINT)
    assert ends == [130]
    assert capfd.readouterr().err == "refitcheck: interrupted\n"
