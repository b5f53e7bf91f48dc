"""What decides whether a fake is used: `pytest tests/benchmarks -o python_files=bench_*.py --benchmark-only`.

Nothing here asserts a time. Each group puts the figure beside a yardstick measured in the same run.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fakes.engine.core import EngineCore
from fakes.engine.protocol import Call, EngineConfig
from fakes.tiny import tiny_config, tiny_weights

CONFIG = tiny_config("llama", tied=False, dtype="bfloat16")
WEIGHTS = tiny_weights(CONFIG, seed=0)


@pytest.fixture
def core() -> EngineCore:
    return EngineCore(EngineConfig(tp_size=2), WEIGHTS, CONFIG)


@pytest.mark.benchmark(group="import")
@pytest.mark.parametrize("statement", ["pass", "import fakes", "import fakes.engine.core", "import numpy"])
def bench_import(benchmark, statement):
    benchmark.pedantic(lambda: subprocess.run([sys.executable, "-c", statement], check=True), rounds=5)


@pytest.mark.benchmark(group="new engine")
@pytest.mark.parametrize("tp", [1, 2])
def bench_new_engine(benchmark, tp):
    benchmark(EngineCore, EngineConfig(tp_size=tp), WEIGHTS, CONFIG)


@pytest.mark.benchmark(group="control call")
def bench_yardstick_json_round_trip(benchmark):
    body = {"success": True, "message": "Success"}
    benchmark(lambda: json.loads(json.dumps(body)))


@pytest.mark.benchmark(group="control call")
@pytest.mark.parametrize("path", ["/model_info", "/pause_generation", "/flush_cache", "/release_memory_occupation"])
def bench_control_call(benchmark, core, path):
    ids = iter(range(10**9))

    def call():
        n = next(ids)
        method = "GET" if path == "/model_info" else "POST"
        return core.step(Call(id=n, path=path, method=method, body={"mode": "retract"}), n * 0.01)

    benchmark(call)


@pytest.mark.benchmark(group="http front, from start to the first /model_info")
def bench_http_front(benchmark, tmp_path):
    import httpx

    from fakes.fronts.process import ServerProcess
    from fakes.tiny import write_model

    write_model(tmp_path / "model", CONFIG, WEIGHTS)

    def start_and_ask():
        server = ServerProcess(["--model-path", str(tmp_path / "model"), "--port", "0"], log=tmp_path / "log")
        try:
            assert httpx.get(f"{server.url}/model_info").status_code == 200
        finally:
            server.kill()

    benchmark.pedantic(start_and_ask, rounds=5)
