"""A training run recorded: the reference client, and broken ones, through the proxy to a fake behind HTTP."""

from __future__ import annotations

import time

import pytest

from conformance import rules
from conformance.plants import catalogue
from fakes.fronts.launcher import Launcher
from fakes.tiny import tiny_config, tiny_weights, write_model
from fakes.trace import Header, TraceWriter
from fakes.trainer import TrainerKit
from harness.endpoint import endpoints_of
from harness.gate import FaultGate
from harness.history_files import read_history
from harness.lanes.base import EngineSpec
from harness.passage import GatedEngine
from harness.reference.adapter import ReferenceSut
from harness.rejudge import judge_history, rules_for
from harness.suites import Book
from harness.sut.protocol import Fleet
from real_runs.attached import Attached, look
from real_runs.client import HttpClient
from real_runs.link import HttpLink
from real_runs.recording.serving import Plan, Recorder
from real_runs.server import ServerSpec

CONFIG = tiny_config("llama", False, "bfloat16")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    write_model(folder / "model", CONFIG, tiny_weights(CONFIG, 0))
    launcher = Launcher()
    arguments = ("--fake-version", "0.5.23", "--model-path", str(folder / "model"), "--tp-size", "2")
    process = launcher.start([*arguments, "--time-scale", "0.1", "--log-level", "warning"], log=folder / "log")
    yield process
    process.stop()
    launcher.close()


class Clock:
    def __init__(self):
        self.began = time.monotonic()

    def now(self):
        return time.monotonic() - self.began

    def sleep(self, seconds):
        time.sleep(seconds)


class Handle(GatedEngine):
    spec = EngineSpec("0.5.23", tp=2)


def recorded(url, out, refits=2, client=ReferenceSut, between=lambda http: None):
    """The history of `refits` refits by `client`, who knows nothing but the recorder's url."""
    about = look(url)
    clock = Clock()
    trace = TraceWriter()
    trace.write(Header())
    gate = FaultGate(trace, clock.now)
    with Recorder(Plan((url,), about.version, about.tp, out), print) as recorder:
        http = HttpClient(int(recorder.urls[0].rpartition(":")[2]))
        through = Attached(about, ServerSpec(about.version, out, about.tp))
        through.client = http
        handle = Handle(gate, HttpLink(through, clock.now), "e0")
        kit = TrainerKit(None, 2, gate.trainer, wire="shm")
        sut = client()
        sut.setup(Fleet(endpoints_of([handle]), clock, about.version, gate.trainer, kit, {}))
        try:
            for index in range(1, refits + 1):
                sut.set_weights(tiny_weights(CONFIG, index), f"v{index}")
                sut.refit(60.0)
                between(http)
        finally:
            sut.close()
            kit.close()
    return read_history(out)


@pytest.fixture(scope="module")
def book():
    found = Book()
    found.add(rules.all_rules())
    return found


def judged(history, book):
    chosen, _ = rules_for(history, book)
    return {rule.id: verdict.status for rule, verdict in judge_history(history, chosen)}


def test_the_reference_client_is_judged_as_on_a_lane(server, tmp_path, book):
    prompt = {"input_ids": [3, 1, 4, 1, 5], "sampling_params": {"temperature": 0, "max_new_tokens": 3}}
    history = recorded(server.url, tmp_path / "h.jsonl", between=lambda http: http.request("POST", "generate", prompt))

    assert [(r.index, r.ok) for r in history.refits()] == [(0, True), (1, True)]
    assert len(history.calls("generate", origin="traffic")) == 2
    found = judged(history, book)
    assert [rule for rule, status in found.items() if status == "violated"] == []
    assert {"SESS-1", "SESS-4", "SESS-71", "PAUSE-5", "CACHE-4", "VER-71"} <= {
        rule for rule, status in found.items() if status == "held"
    }
    assert "ERR-1" not in found
    assert "not kept" not in (tmp_path / "h.jsonl").read_text()


BROKEN = {"no-session": "SESS-1", "session-per-bucket": "SESS-4", "label-per-post": "VER-71"}


@pytest.mark.parametrize("plant", [p for p in catalogue() if p.id in BROKEN], ids=lambda plant: plant.id)
def test_a_broken_client_is_caught(server, tmp_path, book, plant):
    with plant.apply():
        try:
            history = recorded(server.url, tmp_path / "h.jsonl")
        except Exception:  # what it raised is its own business
            history = read_history(tmp_path / "h.jsonl")

    assert judged(history, book)[BROKEN[plant.id]] == "violated"
