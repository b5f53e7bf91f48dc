"""Scripted servers for the tests of the real lane's own logic."""

from typing import ClassVar

import pytest

from fakes.outcome import Outcome
from fakes.trace import TraceWriter
from harness.gate import FaultGate
from harness.lanes.base import EngineSpec
from real_runs import pool as pool_module
from real_runs import sglang_cpu
from real_runs.server import ServerError
from real_runs.sglang_cpu import SglangCpuLane


class ScriptedServer:
    """A server whose client answers from a little state of its own."""

    made: ClassVar[list] = []
    broken_start = False

    def __init__(self, env, spec, folder, progress):
        self.env, self.spec, self.folder = env, spec, folder
        self.starts, self.alive, self.stale, self.log_path = 0, False, False, folder / "log"
        self.asked, self.serves, self.loads_folders, self.adopted = [], str(spec.model), True, []
        ScriptedServer.made.append(self)

    @property
    def client(self):
        return self

    host, port = "127.0.0.1", 1

    def start(self):
        if ScriptedServer.broken_start:
            raise ServerError("it does not start")
        self.starts += 1
        self.alive = True
        self.stale = False
        self.serves = str(self.spec.model)

    def adopt(self, other):
        self.stop()
        self.adopted.append(other)
        self.alive, other.alive = other.alive, False

    def stop(self):
        self.alive = False

    give_up = stop

    def request(self, method, op, body=None, **options):
        self.asked.append((op, options.get("bearer")))
        if not self.alive:
            return Outcome(ending="refused")
        if op == "generate":
            tokens = [9, 9] if self.stale else [1, 2]
            logprobs = [[-0.5, token, None] for token in tokens]
            return reply({"output_ids": tokens, "meta_info": {"output_token_logprobs": logprobs}})
        if op == "update_weights_from_disk" and self.loads_folders:
            self.serves = body["model_path"]
        return reply({"success": True, "model_path": self.serves})

    def exchange(self, method, op, body=None, **options):
        server = self

        class Exchange:
            cancelled = False

            def run(self):
                return server.request(method, op, body, **options)

            def cancel(self):
                pass

        return Exchange()


def reply(body):
    return Outcome(ending="reply", status=200, body=body)


@pytest.fixture(autouse=True, name="scripted")
def scripted_fixture(monkeypatch, tmp_path):
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path))
    monkeypatch.setattr(pool_module, "Server", ScriptedServer)
    monkeypatch.setattr(sglang_cpu.environments, "make", lambda version, **options: version)
    monkeypatch.setattr("real_runs.engine.SETTLE_S", 0.0)
    monkeypatch.setattr(sglang_cpu.questions, "kept", lambda spec: [])
    monkeypatch.setattr("real_runs.cleaning.TorchPayloads", FreePayloads)
    ScriptedServer.made, ScriptedServer.broken_start = [], False


class FreePayloads:
    def many(self, named, load_format="flattened_bucket"):
        return ["payload"] * len(named)

    def release(self):
        pass


@pytest.fixture(name="lane")
def lane_fixture():
    made = SglangCpuLane({"quiet": "1"})
    yield made
    made.close()


def begun(lane):
    writer = TraceWriter()
    lane.begin(FaultGate(writer, lane.now), 0)
    return writer


SPEC = EngineSpec("0.5.23")
