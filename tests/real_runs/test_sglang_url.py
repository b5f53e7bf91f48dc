"""The lane of servers that run already: fakes behind HTTP stand for them."""

from __future__ import annotations

import dataclasses
from functools import partial

import httpx
import pytest

from fakes.fronts.launcher import Launcher
from fakes.tiny import tiny_config, tiny_weights, write_model
from fakes.trace import Header, TraceWriter
from harness.bench import Bench
from harness.doctor import _lane, _tried
from harness.errors import HarnessError, Unsupported, UsageError
from harness.gate import FaultGate
from harness.lanes.base import EngineSpec
from harness.lanes.info import info_of
from real_runs import questions
from real_runs.attached import client_of, look, preflight
from real_runs.sglang_url import SglangUrlLane
from tests.real_runs.recording.stage import Stub, reply

CONFIG = tiny_config("llama", False, "bfloat16")
SPEC = EngineSpec("0.5.23", tp=2)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attached")
    write_model(folder / "model", CONFIG, tiny_weights(CONFIG, 0))
    launcher = Launcher()
    arguments = ["--fake-version", "0.5.23", "--model-path", str(folder / "model"), "--tp-size", "2"]
    arguments += ["--time-scale", "0.05", "--log-level", "warning"]
    made = [launcher.start(arguments, log=folder / f"{n}.log") for n in range(2)]
    yield made
    for server in made:
        server.stop()
    launcher.close()


@pytest.fixture(autouse=True)
def few_questions(monkeypatch):
    monkeypatch.setattr(questions, "kept", lambda spec: [(0, (1, 2, 3), 2), (1, (1, 2, 3), 2)])


@pytest.fixture
def lane(servers):
    made = SglangUrlLane({"url": servers[0].url, "quiet": "1"})
    trace = TraceWriter()
    trace.write(Header())
    made.begin(FaultGate(trace, made.now), 0)
    yield made
    made.close()


def test_it_is_what_the_servers_say(lane, servers):
    info = info_of(lane)

    assert (info.versions, info.tp, info.kind, info.clock) == (("0.5.23",), 2, "sglang", "real")
    assert lane.engine(SPEC).url == servers[0].url


def test_an_engine_is_clean_and_is_used_again(lane):
    engine = lane.engine(SPEC)
    engine.call("pause_generation", {"mode": "retract"})
    engine.call("begin_weight_update", {})
    lane.finish()
    trace = TraceWriter()
    trace.write(Header())
    lane.begin(FaultGate(trace, lane.now), 0)
    again = lane.engine(SPEC)
    answer = again.call("generate", {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 2}})

    assert answer.status == 200
    assert again.call("begin_weight_update", {}).status == 200
    assert again.call("end_weight_update", {}).status == 200


def test_what_clean_servers_answer_is_asked_before_any_scenario(lane):
    lane.engine(SPEC)
    bench = Bench(lane, lane._gate, SPEC)
    known = lane._expectations_of(SPEC)

    assert known._known
    assert lane.expected(SPEC, 12345, (1, 2, 3), 4) is None
    bench.close_sut()
    known.save()


def test_it_neither_ends_nor_starts_anything(lane, servers):
    engine = lane.engine(SPEC)
    with pytest.raises(Unsupported, match="neither killed nor restarted"):
        engine.kill()
    with pytest.raises(Unsupported, match="neither killed nor restarted"):
        engine.restart()
    assert engine.alive
    with pytest.raises(Unsupported, match="1 servers are attached to"):
        lane.engine(SPEC, "e1")
    lane.close()
    assert servers[0].alive


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": "0.5.22"}, "0.5.23 tp 2 is attached to"),
        ({"tp": 1}, "not 0.5.23 tp 1"),
        ({"shape": "qwen2"}, "not qwen2"),
        ({"tied": True}, "serve a llama"),
        ({"options": (("enable_memory_saver", True),)}, "launch option enable_memory_saver"),
    ],
)
def test_what_they_are_not_is_unsupported(lane, changes, said):
    with pytest.raises(Unsupported, match=said):
        lane.engine(dataclasses.replace(SPEC, **changes))


def test_several_servers_are_a_fleet(servers):
    lane = SglangUrlLane({"url": ",".join(s.url for s in servers), "quiet": "1"})
    trace = TraceWriter()
    trace.write(Header())
    lane.begin(FaultGate(trace, lane.now), 0)
    urls = [lane.engine(SPEC, f"e{n}").url for n in range(2)]
    lane.close()

    assert urls == [s.url for s in servers]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs --lane-option url="),
        ({"url": "http://127.0.0.1:1"}, "http://127.0.0.1:1: .*Connection refused"),
        ({"url": "127.0.0.1:1"}, "is not http://HOST:PORT"),
        ({"url": "http://127.0.0.1:x"}, "is not http://HOST:PORT"),
        ({"url": "http://127.0.0.1:1", "device": "tpu"}, "device=tpu: cpu or cuda"),
        ({"url": "http://127.0.0.1:1", "evidence": "x"}, "has no option evidence"),
    ],
)
def test_what_cannot_be_attached_to_is_one_line(options, said):
    with pytest.raises(UsageError, match=said):
        SglangUrlLane(options)


def test_without_a_url_doctor_finds_nothing_wrong():
    fine, line = _tried("lane sglang-url", partial(_lane, "sglang-url"))
    assert fine
    assert line.startswith("lane sglang-url: not asked for: lane sglang-url needs --lane-option url=")


def test_an_option_that_it_lacks_is_named(servers):
    with pytest.raises(UsageError, match="no option spares; it has device, model, quiet, url"):
        SglangUrlLane({"url": servers[0].url, "spares": "1"})


def test_a_model_that_is_elsewhere_is_asked_for(servers, monkeypatch):
    lane = SglangUrlLane({"url": servers[0].url, "quiet": "1", "model": "/nowhere"})
    with pytest.raises(UsageError, match="--lane-option model=FOLDER"):
        lane.model(SPEC)
    lane.close()


SAYS = {"version": "0.5.23", "tp_size": 2, "dtype": "bfloat16", "model_path": "m", "weight_version": "v"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": "9.9.9"}, "no version that rules know"),
        ({"tp_size": "many"}, "does not say what it is: ValueError"),
        ({"version": None}, "no version that rules know"),
    ],
)
def test_a_stranger_is_refused(changes, said):
    stub = Stub()
    stub.answer = lambda handler, body: reply(handler, 200, httpx.Response(200, json=SAYS | changes).content)
    _, wrong = preflight([stub.url])
    stub.stop()

    assert said in wrong[0].line


def test_servers_that_differ_are_no_fleet():
    stubs = [Stub(), Stub()]
    for stub, tp in zip(stubs, (1, 2), strict=True):
        content = httpx.Response(200, json=SAYS | {"tp_size": tp}).content
        stub.answer = lambda handler, body, content=content: reply(handler, 200, content)
    found, wrong = preflight([stub.url for stub in stubs])
    for stub in stubs:
        stub.stop()

    assert len(found) == 2
    assert f"is not what {stubs[0].url} serves" in wrong[0].line


def test_a_key_is_sent():
    stub = Stub()
    stub.answer = lambda handler, body: reply(handler, 401, b'{"error": "Unauthorized"}')
    finding = look(stub.url, "k")
    stub.stop()

    assert finding.line == f"{stub.url}: GET /get_server_info: 401 Unauthorized"
    assert stub.seen[0][2]["authorization"] == "Bearer k"
    assert client_of("http://h.example:80/").port == 80


def test_a_server_that_is_gone_is_one_line(servers, lane, monkeypatch):
    monkeypatch.setattr("real_runs.attached.listens", lambda client: False)
    with pytest.raises(HarnessError, match="nobody listens any more"):
        lane.engine(SPEC)
