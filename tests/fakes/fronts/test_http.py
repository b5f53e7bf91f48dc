"""The HTTP front: everything goes to the core as it came, and what the core says comes back; death is real."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import textwrap

import httpx
import psutil
import pytest

from tests.fakes.fronts.conftest import ROOT, ended


@pytest.fixture(scope="module")
def server(start):
    with start() as server:
        yield server


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client


def test_the_whole_request_reaches_the_core(client):
    reply = client.put(
        "/request?timeout=3&empty=", content=b'{"a": 1', headers={"Authorization": "Bearer key", "X-Other": "1"}
    )
    assert reply.status_code == 201
    assert reply.json() == {
        "method": "PUT",
        "query": {"timeout": "3", "empty": ""},
        "bearer": "key",
        "body": '{"a": 1',
    }


def test_no_body_is_no_body_and_basic_is_no_bearer(client):
    said = client.get("/request", headers={"Authorization": "Basic a2V5"}).json()
    assert (said["body"], said["bearer"]) == (None, None)


def test_a_text_and_an_empty_answer(client):
    text, empty = client.post("/text"), client.post("/empty")
    assert (text.status_code, text.text, text.headers["content-type"]) == (400, "no\n", "text/plain; charset=utf-8")
    assert (empty.status_code, empty.content) == (503, b"")
    assert "content-type" not in empty.headers


def test_a_stream_is_server_sent_events(client):
    with client.stream("POST", "/stream", json={"n": 3, "every": 0.1}) as reply:
        assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        lines = [line for line in reply.iter_lines() if line]
    assert lines == ['data: {"i":0}', 'data: {"i":1}', 'data: {"i":2}', "data: [DONE]"]


def test_durations_are_scaled(client):
    # 200 seconds of the core would time out.
    assert client.post("/in", json={"s": 20.0}, timeout=10).json() == {"after": 20.0}


def test_a_client_that_hangs_up_is_a_cancel(client):
    before = client.post("/cancelled").json()
    with pytest.raises(httpx.ReadTimeout):
        client.post("/hang", timeout=0.2)
    # The server notices on its own time; every question gives it a turn.
    assert any(client.post("/cancelled").json() == before + 1 for _ in range(1000))


def test_a_client_that_hangs_up_amid_a_stream_is_a_cancel(client):
    before = client.post("/cancelled").json()
    with client.stream("POST", "/stream", json={"n": 2000, "every": 0.1}) as reply:
        next(reply.iter_lines())
    assert any(client.post("/cancelled").json() == before + 1 for _ in range(1000))


def test_answers_overlap(client):
    slow = httpx.Client(base_url=client.base_url, timeout=30)
    with slow, slow.stream("POST", "/stream", json={"n": 2, "every": 4.0}) as reply:
        assert client.post("/text").status_code == 400
        assert len([line for line in reply.iter_lines() if line]) == 3


def test_a_body_over_the_limit_is_refused(start):
    with start("--max-body-mb", "1") as server:
        reply = httpx.post(server.url + "/request", content=b"x" * (2 << 20))
        assert reply.status_code == 413
        assert "larger than 1048576 bytes" in reply.json()["detail"]
        assert httpx.post(server.url + "/request", content=b"x").status_code == 201


def test_death_is_a_dropped_connection_then_refused_connects(start, tmp_path):
    with start("--trace", str(tmp_path / "t.jsonl"), "--engine-name", "e7", log=tmp_path / "log") as server:
        with pytest.raises(httpx.RemoteProtocolError, match="disconnected without sending"):
            httpx.post(server.url + "/die", json={"after": 5.0}, timeout=30)
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/health")
        assert server.wait(10) == -signal.SIGKILL
        log = server.log_tail()
    assert "Scheduler hit an exception: AssertionError: boom" in log
    assert "SIGQUIT received." in log
    header, raised, died = (json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines())
    assert (header["kind"], header["clock"], header["engine"]) == ("header", "scaled", "e7")
    assert (raised["name"], died["name"], died["engine"]) == ("raise", "die", "e7")
    assert died["t"] - raised["t"] >= 5.0


def test_a_server_that_is_stopped_leaves_nothing(start):
    server = start()
    process = psutil.Process(server.pid)
    with socket.create_connection(("127.0.0.1", server.port)):
        server.stop()
        server.stop()
    assert not process.is_running()
    assert server.returncode == -signal.SIGKILL


def test_a_server_ends_with_a_parent_that_was_killed(model):
    script = f"""
        import sys
        from fakes.fronts.process import ServerProcess
        server = ServerProcess(["--model-path", {str(model)!r}, "--core", "tests.fakes.scripted:ScriptedCore"])
        print(server.pid, flush=True)
        sys.stdin.read()
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with parent:
        server = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        assert ended(server.pid, 20)


def test_sigterm_ends_it_in_peace(start):
    with start() as server:
        psutil.Process(server.pid).terminate()
        assert server.wait(20) is not None
