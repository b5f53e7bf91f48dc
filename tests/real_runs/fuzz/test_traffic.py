"""Generations of a real server are watched chunk by chunk; here a server that sends them when it is told."""

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from fakes.outcome import Outcome
from real_runs import sequence as s
from real_runs.client import HttpClient
from real_runs.fuzz.draft import GO_ON_S, WAIT_S
from real_runs.fuzz.sides import tiny
from real_runs.fuzz.traffic import LivePort, last_chunk, with_port

STREAM = s.start("a", "generate", s.generate(stream=True))
CUT = "cut"


class Talker:
    """Sends what `say` gets as chunks of every stream; None ends it, CUT breaks it off."""

    def __init__(self):
        self.said, self.asked = queue.Queue(), []
        talker = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                talker.asked.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                while (said := talker.said.get()) not in (None, CUT):
                    self.wfile.write(b"data: " + json.dumps(said).encode() + b"\n\n")
                    self.wfile.flush()
                if said is None:
                    self.wfile.write(b"data: [DONE]\n\n")

            def do_GET(self):
                talker.asked.append((self.path, None))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.port = LivePort(SimpleNamespace(client=HttpClient(self.server.server_address[1])), tiny())


@pytest.fixture
def talker():
    talker = Talker()
    yield talker
    talker.said.put(None)
    talker.server.shutdown()
    talker.server.server_close()


def test_a_stream_ends_as_its_last_chunk(talker):
    call = talker.port.start(STREAM)
    for said in ({"output_ids": [1]}, {"output_ids": [1, 2]}, None):
        talker.said.put(said)
    assert call.result(10.0).body == {"output_ids": [1, 2]}
    assert talker.asked[0] == ("/generate", STREAM.body)


def test_a_generation_that_ended_is_put_away_before_the_next_call(talker):
    call = talker.port.start(STREAM)
    talker.said.put(None)
    assert call.result(10.0).body is None
    assert [path for path, _ in talker.asked[1:]] == ["/server_info"] * 2


def test_a_wait_ends_when_every_generation_has_gone_on(talker):
    talker.port.start(STREAM)
    talker.said.put({"output_ids": [1]})
    talker.port.sleep(GO_ON_S)
    (stream,) = talker.port._live
    assert stream.events == 1
    late = threading.Timer(0.05, talker.said.put, [{"output_ids": [1, 2]}])
    late.start()
    talker.port.sleep(GO_ON_S)
    late.join()
    assert stream.events == 2


def test_a_wait_for_what_cannot_go_on_is_short_and_one_that_ended_is_not_waited_for(talker):
    call = talker.port.start(STREAM)
    talker.port.sleep(WAIT_S)
    assert not call.done
    talker.said.put(None)
    talker.port.sleep(GO_ON_S)
    assert call.done
    talker.port.sleep(GO_ON_S)
    assert talker.port._live == []


def test_a_stream_that_breaks_off_was_dropped(talker):
    call = talker.port.start(STREAM)
    talker.said.put({"output_ids": [1]})
    talker.said.put(CUT)
    assert call.result(10.0).ending == "dropped"


def test_a_server_that_is_gone_refuses(talker):
    talker.server.shutdown()
    talker.server.server_close()
    assert talker.port.start(STREAM).result(10.0).ending == "refused"


def test_an_answer_without_a_stream_stays_as_it_is():
    for body in ({"output_ids": [1]}, "text", None, {"stream": []}):
        outcome = Outcome(ending="reply", status=200, body=body)
        assert last_chunk(outcome).body == (None if body == {"stream": []} else body)


def test_a_port_is_filled_in_where_one_is_asked_for():
    step = s.call("init_weights_update_group", {"master_port": {"$port": 0}, "world_size": 1})
    assert with_port(step, lambda: 7).body == {"master_port": 7, "world_size": 1}
    assert with_port(s.FLUSH, lambda: 7) is s.FLUSH
