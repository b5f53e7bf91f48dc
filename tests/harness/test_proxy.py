from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from fakes.trace import Header, TraceWriter
from harness.faults import parse_fault
from harness.gate import FaultGate, payload_digest
from harness.history import History
from harness.proxy_gate import Doors


class Server:
    """A server that answers with what the test puts into `answer`, and keeps what it was sent."""

    name = "e0"

    def __init__(self) -> None:
        self.incarnation = 0
        self.kills = 0
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer = lambda handler: reply(handler, 200, b'{"success": true}')
        self.start()

    def start(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.seen.append((self.command, self.path, dict(self.headers), body))
                outer.answer(self)

            do_GET = do_POST = do_HEAD = handle_one  # noqa: N815

            def log_message(self, *args) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def kill(self) -> None:
        self.kills += 1
        self.stop()


def reply(handler, status: int, body: bytes, media: str = "application/json", **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Type": media, "Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


class Stage:
    def __init__(self) -> None:
        self.trace = TraceWriter()
        self.trace.write(Header())
        began = time.monotonic()
        self.gate = FaultGate(self.trace, lambda: time.monotonic() - began)
        self.doors = Doors(self.gate)
        self.server = Server()
        self.url = self.doors.url(self.server)
        self.client = httpx.Client(base_url=self.url, timeout=60)

    def fault(self, text: str) -> None:
        self.gate.plant(parse_fault(text))

    def calls(self):
        self.doors.sync()
        return History.from_records(self.trace.records).calls()


@contextmanager
def gone_after(stage, once):
    """Within it a client that sent a call and got no answer so far; afterwards it went away, as soon as `once()`."""
    with socket.create_connection(("127.0.0.1", int(stage.url.rpartition(":")[2])), 60) as raw:
        raw.sendall(b"POST /flush_cache HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        while not once():  # the test's own time limit ends it
            pass
        yield raw


@pytest.fixture
def stage():
    stage = Stage()
    yield stage
    stage.client.close()
    stage.doors.close()
    stage.server.stop()


def test_a_call_passes_byte_for_byte_and_is_recorded_as_the_clients_own(stage):
    sent = b'{"b":1.0,\n "a":"\xc3\xa9", "a": 2}'
    told = b'{"success":true , "x":1e0}'
    stage.server.answer = lambda handler: reply(handler, 201, told, X_Own="kept", Date="then")
    headers = {"Authorization": "Bearer secret", "Content-Type": "application/json", "X-More": "1"}
    got = stage.client.post("/a/b%20c?x=1&y=%2F", content=sent, headers=headers)
    method, path, seen, body = stage.server.seen[0]
    assert (method, path, body) == ("POST", "/a/b%20c?x=1&y=%2F", sent)
    assert (seen["authorization"], seen["content-type"], seen["x-more"]) == ("Bearer secret", "application/json", "1")
    assert "127.0.0.1" in seen["host"]
    assert seen["host"] in stage.server.url
    assert (got.status_code, got.content, got.headers["x-own"]) == (201, told, "kept")
    assert got.headers["content-type"] == "application/json"
    (call,) = stage.calls()
    assert (call.origin, call.engine, call.op, call.method, call.status) == ("sut", "e0", "a/b c", "POST", 201)
    assert call.request == {"?x": "1", "?y": "/", "a": 2, "b": 1.0}
    assert call.body == {"success": True, "x": 1}
    assert "secret" not in repr(stage.trace.records)


def test_bodies_of_many_megabytes_pass_and_only_their_digest_is_kept(stage):
    payload = "x" * (24 << 20)
    sent = json.dumps({"serialized_named_tensors": [payload]}).encode()
    told = b"\x00\xff" * (4 << 20)
    stage.server.answer = lambda handler: reply(handler, 200, told, "application/octet-stream")
    assert stage.client.post("/update_weights_from_tensor", content=sent).content == told
    assert stage.server.seen[0][3] == sent
    (call,) = stage.calls()
    assert call.request["serialized_named_tensors"] == [{"len": len(payload), "sha256": payload_digest(payload)}]
    assert set(call.body) == {"len", "sha256"}


def test_gets_heads_empty_bodies_texts_and_what_is_no_json(stage):
    stage.server.answer = lambda handler: reply(handler, 200, b"12", "text/plain")
    assert stage.client.get("/health").text == "12"
    head = stage.client.head("/health")
    assert (head.content, head.headers["content-length"]) == (b"", "2")
    stage.client.post("/odd", content=b"\xff not json")
    health, _, odd = stage.calls()
    assert (health.method, health.request, health.body) == ("GET", None, "12")
    assert odd.request["len"] == 10
    assert "content-length" not in {name.lower() for name in stage.server.seen[0][2]}


def events(handler, parts, between) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
    handler.end_headers()
    for part in parts:
        handler.wfile.write(part)
        handler.wfile.flush()
        between()


def test_a_stream_passes_event_by_event_and_its_end_is_recorded_before_the_client_hears_it(stage):
    turn = threading.Semaphore(0)
    parts = [b'data: {"t":1}\n\n', b'data: {"t":2}\n\n', b"data: [DONE]\n\n"]
    waits = iter((60, 60, 0.3))  # seconds: the client must not hear the last event before the server's end
    stage.server.answer = lambda handler: events(handler, parts, lambda: turn.acquire(timeout=next(waits)))
    got = []
    with stage.client.stream("POST", "/generate", json={"stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for chunk in response.iter_raw():
            got.append(chunk)
            if b"DONE" in chunk:
                assert [call.outcome for call in stage.calls()] == ["ok"]
            else:
                turn.release()
    assert b"".join(got) == b"".join(parts)
    assert got[0] == parts[0]
    assert stage.calls()[0].body == b"".join(parts).decode()


def test_a_server_that_dies_in_the_middle_of_a_stream_cuts_the_connection(stage):
    def answer(handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"data: 1\n\n")

    stage.server.answer = answer
    with pytest.raises(httpx.RemoteProtocolError):
        stage.client.post("/generate", json={})
    assert stage.calls()[0].error.startswith("dropped")


def test_a_client_that_goes_away_reaches_the_server_and_is_recorded_as_a_timeout(stage):
    arrived, left = threading.Event(), threading.Event()

    def answer(handler) -> None:
        arrived.set()
        if handler.connection.recv(1) == b"":
            left.set()

    stage.server.answer = answer
    with gone_after(stage, arrived.is_set):
        pass
    (call,) = stage.calls()
    assert (call.outcome, call.status) == ("indefinite", None)
    assert call.error.startswith("timeout")
    assert left.wait(60)


def test_a_dead_server_resets_and_the_next_incarnation_is_behind_the_same_url(stage):
    stage.client.get("/health")
    stage.server.stop()
    with pytest.raises(httpx.TransportError):
        stage.client.get("/health")
    stage.server.incarnation = 1
    stage.server.start()
    assert stage.client.get("/health").status_code == 200
    calls = stage.calls()
    assert [(c.incarnation, c.outcome) for c in calls] == [(0, "ok"), (0, "fail"), (1, "ok")]
    assert calls[1].error.startswith("refused")


@pytest.mark.parametrize(
    ("fault", "status", "content", "delivered"),
    [
        ("before:status400", 400, {"success": False, "message": "injected failure"}, 0),
        ("after:status400", 400, {"success": False, "message": "injected failure"}, 1),
        ("before:status500", 500, "Internal Server Error", 0),
        ("after:success_false", 200, {"success": False, "message": "injected failure"}, 1),
    ],
)
def test_a_fault_answers_in_place_of_the_server(stage, fault, status, content, delivered):
    stage.fault(f"e0:flush_cache#2:{fault}")
    assert stage.client.post("/flush_cache").json() == {"success": True}
    got = stage.client.post("/flush_cache")
    assert got.status_code == status
    assert (got.text if isinstance(content, str) else got.json()) == content
    assert stage.client.post("/flush_cache").status_code == 200
    assert len(stage.server.seen) == 2 + delivered
    assert [call.status for call in stage.calls()] == [200, status, 200]


@pytest.mark.parametrize(("when", "delivered"), [("before", 0), ("after", 1)])
def test_a_drop_closes_the_connection_without_an_answer(stage, when, delivered):
    stage.fault(f"e0:flush_cache#1:{when}:drop")
    with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
        stage.client.post("/flush_cache")
    assert len(stage.server.seen) == delivered
    assert stage.calls()[0].error.startswith("dropped")


@pytest.mark.parametrize(("when", "delivered"), [("before", 0), ("after", 1)])
def test_a_hang_lasts_until_the_client_goes_away(stage, when, delivered):
    stage.fault(f"e0:flush_cache#1:{when}:hang")
    with gone_after(stage, lambda: stage.server.seen if delivered else stage.calls()) as raw:
        raw.settimeout(0.3)
        with pytest.raises(TimeoutError):
            raw.recv(1)
        assert [call.outcome for call in stage.calls()] == ["open"]
    assert len(stage.server.seen) == delivered
    (call,) = stage.calls()
    assert call.error.startswith("timeout")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_delay_is_waited_for_and_then_all_is_well(stage, when):
    stage.fault(f"e0:flush_cache#1:{when}:delay=0.2")
    assert stage.client.post("/flush_cache").json() == {"success": True}
    (call,) = stage.calls()
    assert call.ok
    assert call.end_t - call.t >= 0.2


def test_a_delayed_call_still_arrives_after_its_client_gave_up(stage):
    arrived = threading.Event()
    stage.server.answer = lambda handler: (reply(handler, 200, b"{}"), arrived.set())
    stage.fault("e0:flush_cache#1:before:delay=3")
    with gone_after(stage, stage.calls):
        pass
    assert stage.calls()[0].error.startswith("timeout")
    assert not arrived.is_set()
    assert arrived.wait(60)


@pytest.mark.parametrize(("when", "delivered"), [("before", 0), ("after", 1)])
def test_a_fatal_call_is_dropped_and_the_server_is_killed(stage, when, delivered):
    stage.fault(f"e0:flush_cache#1:{when}:die")
    with pytest.raises(httpx.RemoteProtocolError):
        stage.client.post("/flush_cache")
    assert (stage.server.kills, len(stage.server.seen)) == (1, delivered)
    with pytest.raises(httpx.TransportError):
        stage.client.post("/flush_cache")
    assert [call.error[:7] for call in stage.calls()] == ["dropped", "refused"]


def test_closing_ends_what_is_under_way_unbinds_and_ends_the_thread(stage, capfd):
    stage.fault("e0:flush_cache#1:before:hang")
    failed = []

    def wait() -> None:
        try:
            httpx.post(stage.url + "/flush_cache", timeout=60)
        except httpx.HTTPError as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    deadline = time.monotonic() + 60
    while not stage.calls() and time.monotonic() < deadline:
        thread.join(0.01)
    stage.doors.close()
    thread.join(60)
    assert [type(error) for error in failed] == [httpx.RemoteProtocolError]
    with pytest.raises(httpx.ConnectError):
        httpx.get(stage.url + "/health")
    assert [thread.name for thread in threading.enumerate() if thread.name == "proxy"] == []
    assert [call.outcome for call in stage.calls()] == ["open"]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("killed", [True, False])
def test_nothing_is_bound_after_the_process_has_ended(killed):
    code = (
        "import sys, time\n"
        "from fakes.trace import TraceWriter\n"
        "from harness.gate import FaultGate\n"
        "from harness.proxy_gate import Doors\n"
        "class T: name, incarnation, url = 'e0', 0, 'http://127.0.0.1:9'\n"
        "print(Doors(FaultGate(TraceWriter(), time.monotonic)).url(T()), flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = process.stdout.readline().strip()
    port = int(re.search(r":(\d+)$", url)[1])
    socket.create_connection(("127.0.0.1", port), 60).close()
    if killed:
        process.kill()
    process.communicate(timeout=60)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 60)


def test_a_second_door_to_the_same_target_is_the_first(stage):
    assert stage.doors.url(stage.server) == stage.url
