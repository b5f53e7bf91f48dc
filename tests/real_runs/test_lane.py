"""The lane's own logic: reuse, cleaning, the oracle, options; servers are scripted here."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from fakes.trace import Complete, Invoke
from harness.errors import HarnessError, Unsupported
from harness.faults import parse_fault
from harness.lanes.base import EngineSpec, Expected
from real_runs import sglang_cpu
from real_runs.client import HttpClient
from real_runs.sglang_cpu import SglangCpuLane
from tests.real_runs.scripted_lane import SPEC, ScriptedServer, begun
from tests.real_runs.scripted_lane import lane_fixture as lane_fixture  # fixtures are found by name
from tests.real_runs.scripted_lane import scripted_fixture as scripted_fixture


def test_a_server_is_reused_by_the_next_scenario(lane):
    for _ in range(3):
        begun(lane)
        assert lane.engine(SPEC).alive
        lane.finish()

    assert [server.starts for server in ScriptedServer.made] == [1]


def test_another_seed_is_the_same_server_and_another_dtype_is_not(lane):
    for spec in (SPEC, EngineSpec("0.5.23", seed=5), EngineSpec("0.5.23", dtype="float32")):
        begun(lane)
        lane.engine(spec)
        lane.finish()

    assert [server.starts for server in ScriptedServer.made] == [1, 1]


def test_two_engines_of_one_scenario_are_two_servers(lane):
    begun(lane)
    lane.engine(SPEC, "e0")
    lane.engine(SPEC, "e1")

    assert len(ScriptedServer.made) == 2


def test_a_dead_server_is_started_again(lane):
    begun(lane)
    lane.engine(SPEC).kill()
    lane.finish()
    begun(lane)

    assert lane.engine(SPEC).alive
    assert [server.starts for server in ScriptedServer.made] == [2]


def test_a_reset_that_does_not_work_is_a_restart(lane):
    begun(lane)
    lane.engine(SPEC)
    lane.finish()
    ScriptedServer.made[0].stale = True
    begun(lane)
    lane.engine(SPEC)

    assert ScriptedServer.made[0].starts == 2


@pytest.mark.parametrize(("loads_folders", "starts"), [(True, 1), (False, 2)])
def test_a_server_that_a_disk_update_renamed_gets_its_own_folder_back(lane, loads_folders, starts):
    begun(lane)
    lane.engine(SPEC).call("update_weights_from_disk", {"model_path": "/elsewhere"})
    lane.finish()
    server = ScriptedServer.made[0]
    assert server.serves == "/elsewhere"
    server.loads_folders = loads_folders
    begun(lane)
    lane.engine(SPEC)

    assert (server.serves, server.starts) == (str(server.spec.model), starts)
    assert not server.asked[-1][0].startswith("update_weights_from_disk")


def test_a_restart_is_the_next_incarnation(lane):
    begun(lane)
    engine = lane.engine(SPEC)
    engine.kill()
    engine.restart()

    assert (engine.incarnation, engine.alive) == (1, True)


def test_the_longest_idle_server_makes_room(lane):
    for dtype, shape in (("float32", "llama"), ("bfloat16", "llama"), ("float32", "qwen2"), ("float32", "qwen3")):
        begun(lane)
        lane.engine(EngineSpec("0.5.23", dtype=dtype, shape=shape))
        lane.finish()

    assert [server.alive for server in ScriptedServer.made] == [False, True, True, True]


def test_close_ends_every_server(lane):
    begun(lane)
    lane.engine(SPEC)
    lane.close()

    assert not ScriptedServer.made[0].alive


def test_calls_are_recorded_by_the_gate(lane):
    writer = begun(lane)
    engine = lane.engine(SPEC)
    engine.call("begin_weight_update", {})
    assert engine.start("generate", {}).result(300).status == 200

    assert [r.op for r in writer.records if isinstance(r, Invoke)] == ["begin_weight_update", "generate"]
    assert [r.status for r in writer.records if isinstance(r, Complete)] == [200, 200]


def test_the_expectation_comes_from_an_oracle_once(lane, tmp_path):
    begun(lane)
    lane.engine(SPEC)
    first = lane.expected(SPEC, 1, [5, 6], 2)
    again = lane.expected(SPEC, 1, [5, 6], 2)
    lane.finish()

    assert first == again == Expected((1, 2), (-0.5, -0.5))
    assert len(ScriptedServer.made) == 2
    oracle = ScriptedServer.made[1]
    assert [op for op, _ in oracle.asked].count("generate") == 2  # the check of the reset, and the one question
    lane.close()
    another = SglangCpuLane({"quiet": "1"})
    assert another.expected(SPEC, 1, [5, 6], 2) == first
    assert len(ScriptedServer.made) == 2


def foreseen(monkeypatch, *questions):
    monkeypatch.setattr(sglang_cpu.questions, "kept", lambda spec: list(questions))


def test_what_was_foreseen_is_asked_of_the_first_server_before_a_scenario_has_it(lane, monkeypatch):
    foreseen(monkeypatch, (1, (5, 6), 2), (2, (5, 6), 2))
    writer = begun(lane)
    lane.engine(SPEC)
    asked = list(ScriptedServer.made[0].asked)

    assert lane.expected(SPEC, 1, [5, 6], 2) == lane.expected(SPEC, 2, [5, 6], 2) == Expected((1, 2), (-0.5, -0.5))
    assert len(ScriptedServer.made) == 1
    assert ScriptedServer.made[0].asked == asked
    assert not [record for record in writer.records if isinstance(record, Invoke)]
    loads = [op for op, _ in asked if op == "update_weights_from_tensor"]
    assert len(loads) == 4  # clean, the two seeds, clean again
    assert lane.expected(SPEC, 1, [7], 2) is not None
    assert len(ScriptedServer.made) == 2


def test_a_server_that_a_scenario_has_had_is_not_asked(lane, monkeypatch):
    begun(lane)
    lane.engine(SPEC)
    lane.finish()
    foreseen(monkeypatch, (1, (5,), 2))
    begun(lane)
    lane.engine(SPEC)
    lane.expected(SPEC, 1, [5], 2)

    assert len(ScriptedServer.made) == 2


def test_a_server_with_options_of_its_own_is_not_asked(lane, monkeypatch):
    foreseen(monkeypatch, (1, (5,), 2))
    begun(lane)
    lane.engine(EngineSpec("0.5.23", options=(("weight_version", "v0"),)))

    assert [op for op, _ in ScriptedServer.made[0].asked].count("generate") == 1


def test_a_dead_oracle_is_replaced(lane):
    begun(lane)
    lane.expected(SPEC, 1, [5], 2)
    ScriptedServer.made[0].alive = False

    assert lane.expected(SPEC, 1, [6], 2) is not None


def test_what_cannot_be_asked_of_a_cpu_is_unsupported_by_name(lane):
    begun(lane)
    for spec, name in (
        (EngineSpec("0.5.23", options=(("enable_memory_saver", True),)), "memory saver"),
        (EngineSpec("0.5.23", options=(("strict_memory", True),)), "strict_memory"),
        (EngineSpec("miles"), "miles"),
        (EngineSpec("0.5.23", tp=4), "tp 4"),
    ):
        with pytest.raises(Unsupported, match=name):
            lane.engine(spec)


def test_options_reach_the_launch(lane):
    begun(lane)
    options = (("admin_api_key", "b"), ("api_key", "a"), ("checker_cuda_shim", True), ("weight_version", "v0"))
    lane.engine(EngineSpec("0.5.23", options=options))
    spec = ScriptedServer.made[0].spec

    assert (spec.admin_api_key, spec.api_key, spec.checker_cuda, spec.extra) == (
        "b",
        "a",
        True,
        ("--weight-version", "v0"),
    )
    assert dict(ScriptedServer.made[0].asked)["generate"] == "a"
    assert dict(ScriptedServer.made[0].asked)["flush_cache"] == "b"


def test_a_launch_option_that_sets_the_version_survives_the_reset(lane):
    begun(lane)
    lane.engine(EngineSpec("0.5.23", options=(("weight_version", "v0"),)))

    assert lane._engines[0].held.cleaner.version == "v0"


def test_a_trainer_kit_is_freed_with_its_scenario(lane):
    begun(lane)
    kit = lane.trainer(2)
    kit.export(0, [("a", np.zeros(2, dtype=np.float32))])

    assert (kit.ranks, kit.live_exports()) == (2, 1)
    lane.finish()
    assert kit.live_exports() == 0
    with pytest.raises(HarnessError, match="between scenarios"):
        lane.trainer(2)


def test_a_client_of_urls_goes_through_the_gate_and_the_harness_does_not(lane, monkeypatch):
    """The door is the same for the next incarnation; a fault of the gate meets what is said to it."""
    with listening(b"{}") as (host, port):
        writer = begun(lane)
        engine = lane.engine(SPEC)
        monkeypatch.setattr(ScriptedServer, "port", port)
        lane._gate.plant(parse_fault("e0:flush_cache#1:before:status500"))
        client = HttpClient(int(engine.gated_url.rpartition(":")[2]))

        assert client.request("POST", "flush_cache", {}).status == 500
        assert client.request("POST", "flush_cache", {}).status == 200
        lane.sync()
        assert engine.url == f"http://{host}:{port}"
    calls = [(r.op, r.origin, r.fault) for r in writer.records if isinstance(r, Invoke)]
    assert calls == [("flush_cache", "sut", "e0:flush_cache#1:before:status500"), ("flush_cache", "sut", "")]
    lane.finish()
    with pytest.raises(HarnessError, match="between scenarios"):
        _ = lane.doors


@contextmanager
def listening(body):
    """A server on loopback that answers every POST with `body`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address
    finally:
        server.shutdown()
        server.server_close()


def test_the_client_type_is_what_links_use():
    assert hasattr(HttpClient(1), "exchange")
