"""The HTTP front: everything goes to the core as it came, and what the core says comes back; death is real."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

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
    with httpx.Client(base_url=server.url, timeout=100) as client:
        yield client


def test_the_whole_request_reaches_the_core(client):
    reply = client.put(
        "/request?timeout=3&empty=",
        content=b'{"a": 1',
        headers={"Authorization": "Bearer key", "Content-Type": "text/odd; charset=utf-8"},
    )
    assert reply.status_code == 201
    assert reply.json() == {
        "method": "PUT",
        "query": {"timeout": "3", "empty": ""},
        "bearer": "key",
        "body": '{"a": 1',
        "content_type": "text/odd; charset=utf-8",
    }


def test_no_body_is_no_body_and_basic_is_no_bearer(client):
    said = client.get("/request", headers={"Authorization": "Basic a2V5"}).json()
    assert (said["body"], said["bearer"], said["content_type"]) == (None, None, "")


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


def test_a_stream_begins_before_anything_of_it_comes(client):
    with client.stream("POST", "/begins") as reply:
        assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


def test_a_stream_that_breaks_off_is_a_200_without_an_end(client, server):
    with client.stream("POST", "/breaks") as reply:
        assert reply.status_code == 200
        lines = reply.iter_lines()
        assert next(lines) == 'data: {"i":0}'
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            list(lines)
    assert client.post("/text").status_code == 400, "the server lives"


def test_durations_are_scaled(client):
    # 200 seconds of the core would time out.
    assert client.post("/in", json={"s": 20.0}, timeout=100).json() == {"after": 20.0}


def until(client, path, number):
    """Ask until it says so: the server notices on its own time, and every question gives it a turn."""
    while client.post(path).json() != number:  # the test's own time limit ends it
        pass


def test_a_client_that_hangs_up_is_a_cancel(client, server):
    before = client.post("/cancelled").json()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"POST /hang HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        until(client, "/hanging", 1)
    until(client, "/cancelled", before + 1)
    assert client.post("/hanging").json() == 0


def test_a_client_that_hangs_up_amid_a_stream_is_a_cancel(client):
    before = client.post("/cancelled").json()
    with client.stream("POST", "/stream", json={"n": 2000, "every": 2.0}) as reply:
        next(reply.iter_lines())
    until(client, "/cancelled", before + 1)


def test_answers_overlap(client):
    slow = httpx.Client(base_url=client.base_url, timeout=100)
    with slow, slow.stream("POST", "/stream", json={"n": 2, "every": 4.0}) as reply:
        assert client.post("/text").status_code == 400
        assert len([line for line in reply.iter_lines() if line]) == 3


def test_a_body_over_the_limit_is_refused(start):
    with start("--max-body-mb", "1") as server:
        reply = httpx.post(server.url + "/request", content=b"x" * (2 << 20))
        assert reply.status_code == 413
        assert "larger than 1048576 bytes" in reply.json()["detail"]
        assert httpx.post(server.url + "/request", content=b"x").status_code == 201


def test_a_client_that_leaves_amid_its_upload_made_no_call(client, server):
    before = client.post("/cancelled").json()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"POST /hang HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 10)
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"POST /hang HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n")
    assert [client.post("/cancelled").json() for _ in range(50)] == [before] * 50


def test_a_body_over_the_limit_is_refused_whatever_it_declared(start):
    """Also to a client that only listens when it has said all, as most do."""

    def chunks():
        for _ in range(40):
            yield b"x" * (1 << 18)

    with start("--max-body-mb", "1") as server, httpx.Client(base_url=server.url, timeout=100) as client:
        plain = HTTPConnection("127.0.0.1", server.port, timeout=100)
        plain.request("POST", "/request", body=b"x" * (40 << 20))
        declared = plain.getresponse().status
        plain.close()
        assert (declared, client.post("/request", content=chunks()).status_code) == (413, 413)
        assert client.post("/request", content=b"x" * (1 << 20)).status_code == 201


def test_death_is_a_dropped_connection_then_refused_connects(start, tmp_path):
    with start("--trace", str(tmp_path / "t.jsonl"), "--engine-name", "e7", log=tmp_path / "log") as server:
        with pytest.raises(httpx.RemoteProtocolError, match="disconnected without sending"):
            httpx.post(server.url + "/die", json={"after": 5.0}, timeout=100)
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/health")
        assert server.wait(60) == -signal.SIGKILL
        log = server.log_tail()
    assert "Scheduler hit an exception: AssertionError: boom" in log
    assert "SIGQUIT received." in log
    header, raised, died = (json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines())
    assert (header["kind"], header["clock"], header["engine"]) == ("header", "scaled", "e7")
    assert (raised["name"], died["name"], died["engine"]) == ("raise", "die", "e7")
    assert died["t"] - raised["t"] >= 5.0


def until_frozen(client):
    """Ask until it stops answering; one that is only slow has these seconds."""
    while True:
        try:
            client.get("/no/such", timeout=3.0)
        except httpx.ReadTimeout:
            return


def test_a_frozen_process_connects_and_answers_nothing(start):
    with start() as server, httpx.Client(base_url=server.url) as client, socket.create_connection(
        ("127.0.0.1", server.port)
    ) as raw:  # fmt: skip
        body = b'{"after": 1.0, "s": 1e6}'
        raw.sendall(b"POST /freeze HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        until_frozen(client)
        for path in ("/docs", "/no/such", "/text", "/openapi.json"):
            with pytest.raises(httpx.ReadTimeout):
                httpx.get(server.url + path, timeout=httpx.Timeout(60, read=0.1))
        assert server.alive


def test_what_was_said_before_the_freeze_is_still_heard_and_then_it_dies(start):
    with start() as server, httpx.Client(base_url=server.url, timeout=100) as client, ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(client.post, "/hang") for _ in range(5)]
        until(client, "/hanging", 5)
        with pytest.raises(httpx.RemoteProtocolError):
            client.post("/answer_and_freeze", json={"s": 20.0})
        assert [answer.result().json() for answer in waiting] == ["at last"] * 5
        assert server.wait(60) == -signal.SIGKILL


def test_a_server_that_is_stopped_leaves_nothing(start):
    server = start()
    process = psutil.Process(server.pid)
    with socket.create_connection(("127.0.0.1", server.port)):
        server.stop()
        server.stop()
    assert not process.is_running()
    assert server.returncode == -signal.SIGKILL


@pytest.mark.parametrize("path", ["/text", "/freeze"])
def test_a_server_ends_with_a_parent_that_was_killed_even_when_it_is_frozen(model, path):
    script = f"""
        import sys, httpx
        from fakes.fronts.process import ServerProcess
        server = ServerProcess(["--model-path", {str(model)!r}, "--core", "tests.fakes.scripted:ScriptedCore"])
        try:
            httpx.post(server.url + {path!r}, json=dict(after=0.01, s=1000), timeout=2)
        except httpx.ReadTimeout:
            pass
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
        assert ended(server.pid, 60)


def test_sigterm_ends_it_in_peace(start):
    with start() as server:
        psutil.Process(server.pid).terminate()
        assert server.wait(60) is not None
