"""What passes the proxy passes as it is, and what is written of it is what a fake would have written."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest

from harness.errors import UsageError
from harness.gate import payload_digest
from real_runs.recording import serving
from real_runs.recording.keeper import Unrecorded
from real_runs.recording.passing import Passing
from real_runs.recording.serving import Plan, Recorder
from tests.real_runs.recording.stage import Stage, Stub, reply

SECRET = "sk-live-0123456789"


@pytest.fixture
def make(tmp_path):
    made = []

    def stage(**plan):
        made.append(Stage(tmp_path / f"h{len(made)}.jsonl", **plan))
        return made[-1]

    yield stage
    for one in made:
        one.close()


@pytest.fixture
def stage(make):
    return make()


def test_a_call_passes_as_it_is_and_is_written(stage):
    stage.stubs[0].answer = lambda handler, body: reply(handler, 400, b'{"success": false, "message": "no"}', X_Own="1")
    answer = stage.client.post(
        f"{stage.url}/end_weight_update?a=b%20c", content=b'{"x" : 1}', headers={"Authorization": f"Bearer {SECRET}"}
    )

    assert (answer.status_code, answer.content) == (400, b'{"success": false, "message": "no"}')
    assert answer.headers["x-own"] == "1"
    method, path, headers, body = stage.stubs[0].seen[0]
    assert (method, path, body) == ("POST", "/end_weight_update?a=b%20c", b'{"x" : 1}')
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert headers["host"] == stage.stubs[0].url.removeprefix("http://")
    (call,) = stage.history().calls()
    assert (call.op, call.origin, call.request, call.status) == ("end_weight_update", "sut", {"?a": "b c", "x": 1}, 400)
    assert (call.outcome, call.body) == ("fail", {"success": False, "message": "no"})
    assert SECRET not in stage.plan.out.read_text()


def test_payloads_are_digests_as_the_gate_makes_them(stage):
    payload = "x" * 200_000
    stage.call("update_weights_from_tensor", {"serialized_named_tensors": [payload, "short"], "flush_cache": False})
    (call,) = stage.history().calls()

    assert call.request["serialized_named_tensors"] == [{"len": 200_000, "sha256": payload_digest(payload)}, "short"]


def test_answers_without_a_body_pass(stage):
    def answer(handler, body):
        handler.send_response(204 if handler.command == "PUT" else 200)
        if handler.command != "PUT":
            handler.send_header("Content-Length", "7")
        handler.end_headers()

    stage.stubs[0].answer = answer
    head, put = stage.client.head(f"{stage.url}/health"), stage.client.put(f"{stage.url}/health")

    assert (head.status_code, head.headers["content-length"], head.content) == (200, "7", b"")
    assert (put.status_code, put.content) == (204, b"")
    assert [(c.method, c.status, c.body) for c in stage.history().calls()] == [("HEAD", 200, None), ("PUT", 204, None)]


PROMPT = [987001, 987002, 987003]


def test_a_generation_is_traffic_without_its_words(stage):
    answer = {
        "text": "the answer",
        "output_ids": [987101, 987102],
        "meta_info": {
            **{
                "id": "r1",
                "weight_version": "v7",
                "prompt_tokens": 5,
                "finish_reason": {"type": "stop", "matched": 987103},
            },
            "input_token_logprobs": [[-0.5, 987104, "word"]],
        },
    }
    stage.stubs[0].answer = lambda handler, body: reply(handler, 200, httpx.Response(200, json=answer).content)
    sampling = {"max_new_tokens": 8, "stop": "the end"}
    told = stage.call("generate", {"input_ids": PROMPT, "text": "the question", "sampling_params": sampling})

    assert told.json() == answer
    (call,) = stage.history().calls()
    assert (call.origin, call.request) == (
        "traffic",
        {"input_ids": {"len": 3}, "text": {"len": 12}, "max_new_tokens": 8},
    )
    assert call.body["meta_info"] == {
        **{"id": "r1", "weight_version": "v7", "prompt_tokens": 5, "finish_reason": {"type": "stop"}}
    }
    text = stage.plan.out.read_text()
    assert not [word for word in ("question", "answer", "9870", "9871", "the end") if word in text]


def test_an_error_that_quotes_the_prompt_is_not_written(stage):
    quoting = b'{"error": {"message": "invalid: [987001, 987002, 987003]"}}'
    stage.stubs[0].answer = lambda handler, body: reply(handler, 400, quoting)

    assert stage.call("generate", {"input_ids": PROMPT}).content == quoting
    assert stage.call("v1/chat/completions/secret-tenant", {"messages": [{"content": "hello"}]}).content == quoting
    first, second = stage.history().calls()
    assert (first.status, first.body, second.op, second.body) == (400, {"len": 59}, "v1/…", {"len": 59})
    text = stage.plan.out.read_text()
    assert not [word for word in ("987001", "hello", "secret-tenant") if word in text]


def test_prompts_are_written_where_somebody_asked_for_them(make):
    stage = make(tokens=True)
    stage.stubs[0].answer = lambda handler, body: reply(handler, 200, b'{"output_ids": [987101]}')
    stage.call("generate", {"input_ids": PROMPT})
    (call,) = stage.history().calls()

    assert (call.request["input_ids"], call.body) == (PROMPT, {"output_ids": [987101]})


KEYS = {"api_key": SECRET, "admin_api_key": SECRET, "hf_token": SECRET, "nested": [{"password": SECRET}], "tp_size": 2}


@pytest.mark.parametrize("kept", [False, True])
def test_keys_are_written_only_where_somebody_asked_for_them(make, kept):
    stage = make(keys=kept)
    stage.stubs[0].answer = lambda handler, body: reply(handler, 200, httpx.Response(200, json=KEYS).content)
    answer = stage.client.get(f"{stage.url}/server_info?api_key={SECRET}")
    stage.call("pause_generation", {"mode": "abort", "access_token": SECRET})

    assert answer.json() == KEYS
    history = stage.history()
    assert (SECRET in stage.plan.out.read_text()) is kept
    assert history.calls("server_info")[0].body["tp_size"] == 2


def test_what_is_too_long_is_passed_and_its_length_written(make):
    stage = make(most_body=1000)
    big = b'{"a": "' + b"x" * 300_000 + b'"}'
    stage.stubs[0].answer = lambda handler, body: reply(handler, 200, big)
    answer = stage.client.post(f"{stage.url}/begin_weight_update", content=big)

    assert answer.content == big
    assert stage.stubs[0].seen[0][3] == big
    (call,) = stage.history().calls()
    assert (call.request, call.body) == ({"len": len(big)}, {"len": len(big)})


def test_bodies_stream_in_both_directions(stage):
    begun, go_on = threading.Event(), threading.Event()

    def answer(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for event in (b'data: {"meta_info": {"weight_version": "v1"}}\n\n', b"data: [DONE]\n\n"):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            handler.wfile.flush()
            go_on.wait(60)
        handler.wfile.write(b"0\r\n\r\n")

    def pieces():
        yield b'{"input_ids":'
        begun.set()
        yield b"[1,2],"
        yield b'"stream":true}'

    stage.stubs[0].answer = answer
    with stage.client.stream("POST", f"{stage.url}/generate", content=pieces()) as response:
        events = response.iter_raw()
        first = next(events)
        assert first == b'data: {"meta_info": {"weight_version": "v1"}}\n\n'  # before the server has said all
        go_on.set()
        assert b"".join(events) == b"data: [DONE]\n\n"
    assert begun.is_set()
    assert stage.stubs[0].seen[0][3] == b'{"input_ids":[1,2],"stream":true}'
    (call,) = stage.history().calls()
    assert call.request == {"input_ids": {"len": 2}, "stream": True}
    assert call.body == {"len": 61, "events": 2, "meta_info": {"weight_version": "v1"}}


def test_a_server_that_dies_and_comes_back_is_its_next_incarnation(stage):
    port = stage.stubs[0].port
    assert stage.call("pause_generation", {"mode": "abort"}).status_code == 200
    stage.stubs.pop().stop()
    with pytest.raises(httpx.TransportError):
        stage.call("continue_generation")
    stage.stubs.append(Stub(port))
    assert stage.call("continue_generation").status_code == 200

    history = stage.history()
    assert [(c.incarnation, c.outcome, c.error[:7]) for c in history.calls()] == [
        (0, "ok", ""),
        (0, "fail", "refused"),
        (1, "ok", ""),
    ]
    assert [(n.engine, n.incarnation) for n in history.facts("born")] == [("e0", 1)]


def test_a_connection_that_the_server_cuts_is_cut(stage):
    stage.stubs[0].answer = lambda handler, body: handler.connection.shutdown(2)
    with pytest.raises(httpx.TransportError):
        stage.call("flush_cache")

    (call,) = stage.history().calls()
    assert (call.outcome, call.error[:7]) == ("indefinite", "dropped")


def test_a_client_that_goes_away_is_written_and_the_server_is_told(stage):
    asked, gone = threading.Event(), threading.Event()

    def answer(handler, body):
        asked.set()
        handler.connection.settimeout(60)
        handler.connection.recv(1)  # returns when the proxy closes it
        gone.set()

    stage.stubs[0].answer = answer
    connection = httpx.Client(timeout=60, trust_env=False)

    def ask():
        with pytest.raises(httpx.HTTPError):
            connection.post(f"{stage.url}/flush_cache")

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(60)
    _abort(connection)
    thread.join(60)
    assert gone.wait(60)

    (call,) = stage.history().calls()
    assert (call.outcome, call.error) == ("indefinite", "timeout: the client went away")


def _abort(client):
    """Close the socket under a request of another thread."""
    import socket as sockets

    for connection in client._transport._pool.connections:
        stream = connection._connection._network_stream
        stream.get_extra_info("socket").shutdown(sockets.SHUT_RDWR)


def test_a_full_history_ends_the_recording_and_not_the_run(make):
    stage = make(most_bytes=2000)
    answers = [stage.call("flush_cache").status_code for _ in range(30)]

    assert answers == [200] * 30
    history = stage.history()
    assert len(stage.said) == 1
    assert "nothing more is recorded: it is full" in stage.said[0]
    assert 0 < len(history.calls()) < 30
    assert len(history.facts("recording_cut")) == 1
    assert stage.recorder.trace.lost == 60 - stage.recorder.trace.written + 1


def test_a_disk_that_is_full_does_not_end_the_run_either(stage, monkeypatch):
    def full(data):
        raise OSError(28, "No space left on device")

    class Full:
        write = staticmethod(full)
        close = staticmethod(lambda: None)

    stage.recorder.trace._out.close()
    monkeypatch.setattr(stage.recorder.trace, "_out", Full())
    assert stage.call("flush_cache").status_code == 200
    assert "No space left on device" in stage.said[0]


def test_an_address_that_is_taken_is_one_line_and_leaves_no_file(tmp_path, stage):
    port = int(stage.url.rpartition(":")[2])
    plan = Plan((stage.stubs[0].url,), "0.5.23", 1, tmp_path / "x.jsonl", port=port)
    with pytest.raises(UsageError, match=rf"e0 cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
        Recorder(plan, print)
    assert not (tmp_path / "x.jsonl").exists()


def test_its_end_waits_for_nobody_and_what_comes_afterwards_is_not_written(stage, monkeypatch):
    over = threading.Event()

    async def lingers(passing):
        while not over.is_set():
            await asyncio.sleep(0)

    monkeypatch.setattr(serving, "CLOSE_S", 0.01)
    monkeypatch.setattr(serving.Passing, "close", lingers)
    stage.call("pause_generation", {"mode": "abort"})
    doors = stage.recorder._doors
    history = stage.history()
    assert doors._thread.is_alive()
    assert [call.op for call in history.calls()] == ["pause_generation"]
    written = stage.plan.out.read_bytes()
    stage.recorder.trace.write(history.records[-1])
    assert stage.plan.out.read_bytes() == written
    over.set()
    doors._thread.join()
    doors.close()


def test_nothing_is_sent_to_a_client_that_went_away():
    sent, ends = [], []

    class Gone:
        def is_closing(self):
            return bool(sent)

    async def send(message):
        sent.append(message["type"])

    class Server:
        async def send(self, request, stream):
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Endless())

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self):
            while True:
                yield b"data: 1\n\n"

    async def receive():
        if not sent and not ends:
            ends.append("asked")
            return {"type": "http.request", "body": b"{}"}
        await asyncio.Event().wait()

    class Seen(Unrecorded):
        def arrives(self, method, target):
            visit = super().arrives(method, target)
            visit.settle = ends.append
            return visit

    scope = {"type": "http", "method": "POST", "raw_path": b"/generate", "query_string": b"", "headers": []}
    passing = Passing(Seen("http://127.0.0.1:1"))
    passing._client = Server()
    asyncio.run(passing({**scope, "state": {"transport": Gone()}}, receive, send))
    assert ends == ["asked", "timeout"]
    assert sent == ["http.response.start", "http.response.body"]
