from __future__ import annotations

import threading
import time

import httpx
import psutil
import pytest

from fakes.trace import Header, TraceWriter
from harness.bench import Bench
from harness.cli import invoke
from harness.endpoint import endpoints_of
from harness.gate import FaultGate
from harness.history import History
from harness.lanes.base import EngineSpec
from harness.lanes.http import HttpLane
from tests.examples import http_adapter, minimal_adapter

SCALE = 0.5


class Patient(http_adapter.Adapter):
    """Its calls have the seconds that a busy machine may need; a test that has to wait for them gives less."""

    def setup(self, fleet):
        super().setup(fleet)
        self.trainer.call_s = 60.0


class Forgetful(Patient):
    def setup(self, fleet):
        super().setup(fleet)
        self.trainer.begin = lambda url: None


@pytest.fixture(scope="module")
def lane():
    lane = HttpLane({"time_scale": str(SCALE)})
    yield lane
    lane.close()


@pytest.fixture
def stage(lane):
    trace = TraceWriter()
    trace.write(Header())
    gate = FaultGate(trace, lane.now)
    lane.begin(gate, 0)
    bench = Bench(lane, gate, EngineSpec("0.5.23", tp=2), sut_factory=Patient)

    def finish() -> History:
        return History.from_records(trace.records, *lane.finish())

    yield bench, finish
    bench.close_sut()
    lane.finish()


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def call(*arguments):
        code = invoke(("run", "--exploration", "off", "-n", "1", *arguments))
        out, err = capsys.readouterr()
        return code, out + err

    return call


def ops(history, **wanted):
    return [(c.op, c.outcome) for c in history.calls(origin="sut", **wanted)]


def test_the_url_of_an_endpoint_is_not_the_engines_own_and_is_recorded(stage):
    bench, finish = stage
    (endpoint,) = endpoints_of([bench.e0])
    assert endpoint.url != bench.e0.url
    assert endpoint.url == endpoint.url
    assert httpx.get(f"{endpoint.url}/model_info", timeout=60).json()["weight_version"] == "default"
    assert ops(finish()) == [("model_info", "ok")]


def test_a_generation_streams_through_and_a_bearer_opens_the_door(stage):
    bench, finish = stage
    (endpoint,) = endpoints_of([bench.engine(admin_api_key="secret")])
    assert httpx.post(f"{endpoint.url}/flush_cache", timeout=60).status_code in (401, 403)
    bearer = {"Authorization": "Bearer secret"}
    assert httpx.post(f"{endpoint.url}/flush_cache", headers=bearer, timeout=60).status_code == 200
    body = {"input_ids": [9, 10, 11], "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}, "stream": True}
    with httpx.stream("POST", f"{endpoint.url}/generate", json=body, timeout=60) as response:
        lines = [line for line in response.iter_lines() if line]
    assert len(lines) == 5
    assert lines[-1] == "data: [DONE]"
    assert ops(finish()) == [("flush_cache", "fail"), ("flush_cache", "ok"), ("generate", "ok")]


def test_a_trainer_that_only_knows_the_url_puts_its_weights_into_every_rank(stage):
    bench, finish = stage
    assert bench.refit(1, "one").ok
    bench.canary(bench.e0, "a", seed=1)
    history = finish()
    assert history.canaries()[0].matches()
    assert ops(history)[:3] == [("pause_generation", "ok"), ("flush_cache", "ok"), ("begin_weight_update", "ok")]
    update = history.calls("update_weights_from_tensor", origin="sut")[-1]
    loads = {n.data["rank"]: n.data["digest"] for n in history.facts("load", source="core") if n.pos > update.pos}
    assert loads == {rank: sent["sha256"] for rank, sent in enumerate(update.request["serialized_named_tensors"])}
    assert update.request["weight_version"] == "one"


def test_an_engine_that_a_call_kills_is_behind_the_same_url_when_it_is_back(stage):
    bench, finish = stage
    bench.fault("e0:update_weights_from_tensor#1:after:die")
    failed = bench.refit(1)
    assert isinstance(failed.error, httpx.HTTPError)
    assert not bench.e0.alive
    bench.e0.restart()
    assert bench.refit(1).ok
    bench.canary(bench.e0, "a", seed=1)
    history = finish()
    dead = [c for c in history.calls(origin="sut", incarnation=0) if not c.ok]
    assert dead[0].error.startswith("dropped")
    assert {c.error[:7] for c in dead[1:]} == {"refused"}
    assert all(c.ok for c in history.calls(origin="sut", incarnation=1))
    assert history.canaries()[0].matches()


def test_a_call_that_its_client_gives_up_is_recorded_before_the_refit_ends(stage):
    bench, finish = stage
    bench.fault("e0:pause_generation#1:before:hang", "e0:continue_generation#1:before:hang")
    assert bench.sut  # set up: the door is open
    bench.sut.trainer.call_s = 2.0
    loop = bench.lane.doors._proxy._loop
    bench.sut.trainer._continue = lambda url: bench.sut.trainer.post(url, "continue_generation", {})
    # It learns late that its client is gone.
    bench.when(bench.e0, "continue_generation", 1, lambda: loop.call_later(0.5, time.sleep, 2.0))
    assert isinstance(bench.refit(1).error, httpx.ReadTimeout)
    history = finish()
    (refit,) = history.refits()
    hung = history.calls(origin="sut")
    assert [(c.op, c.error[:7]) for c in hung] == [("pause_generation", "timeout"), ("continue_generation", "timeout")]
    assert all(c.end_pos < refit.end_pos for c in hung)
    assert all(c.end_t - c.t >= 0.5 / SCALE for c in hung)


def test_nothing_is_bound_or_left_running_after_the_scenario(stage):
    bench, finish = stage
    (endpoint,) = endpoints_of([bench.e0])
    url, failed = endpoint.url, []
    bench.e0.call("pause_generation", {"mode": "retract"})  # so that no answer can come, however slow this machine is

    def generate() -> None:
        try:
            httpx.post(f"{url}/generate", json=LONG, timeout=60)
        except httpx.HTTPError as error:
            failed.append(error)

    running = threading.Thread(target=generate)
    running.start()
    while not History.from_records(bench.gate.trace.records).calls("generate"):
        running.join(0.01)
    history = finish()
    running.join(60)
    assert [type(error) for error in failed] == [httpx.RemoteProtocolError]
    assert ops(history) == [("generate", "open")]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
    assert "proxy" not in {thread.name for thread in threading.enumerate()}
    assert psutil.Process(bench.lane.launcher.pid).children() == []


LONG = {"input_ids": [9, 10, 11], "sampling_params": {"max_new_tokens": 10000, "ignore_eos": True}}
GOOD = ("--rule", "SESS-1", "--rule", "CACHE-4", "--rule", "VERIF-1", "--scenario", "refit/cache/a-warm-prompt")
HTTP = ("--lane", "http", "--lane-option", f"time_scale={SCALE}")


@pytest.mark.parametrize(
    ("lane_options", "sut"),
    [
        (HTTP, f"{__name__}:Patient"),
        (HTTP, f"{minimal_adapter.__name__}:Adapter"),
        ((), f"{minimal_adapter.__name__}:Adapter"),
    ],
)
def test_the_examples_are_held(run, lane_options, sut):
    more = ("--scenario", "refit/envelope/two-refits")
    code, out = run(*lane_options, "--sut", sut, *GOOD, *more)
    assert (code, "held 3   violated 0" in out) == (0, True), out


@pytest.mark.parametrize(
    ("lane_options", "sut"), [(HTTP, f"{__name__}:Forgetful"), ((), f"{minimal_adapter.__name__}:ForgetsBegin")]
)
def test_an_example_that_forgets_begin_violates_the_rule_about_sessions(run, lane_options, sut):
    options = ("--rule", "SESS-1", "--scenario", "refit/envelope/two-refits")
    code, out = run(*lane_options, "--sut", sut, *options)
    assert code == 1
    assert "✗ SESS-1 MUST" in out
    assert "a bucket outside a session" in out


@pytest.mark.parametrize(
    ("scenario", "rules"),
    [
        ("refit/faults/begin-is-refused", ("SESS-71", "SESS-3", "ERR-1")),
        ("refit/faults/continue-is-dropped", ("PAUSE-2",)),
        ("refit/faults/the-last-answer-is-lost", ("PART-1", "ERR-1")),
    ],
)
def test_faults_reach_a_trainer_that_only_knows_the_url(run, scenario, rules):
    named = [word for rule in rules for word in ("--rule", rule)]
    code, out = run(*HTTP, "--sut", f"{__name__}:Patient", *named, "--scenario", scenario)
    assert (code, f"held {len(rules)}   violated 0" in out) == (0, True), out
