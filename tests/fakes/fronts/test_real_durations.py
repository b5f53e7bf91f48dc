"""Every duration of a served engine is real time times --time-scale; SGLang's variable spares health its generation."""

from __future__ import annotations

import time

import httpx
import pytest

from fakes.fronts.launch_args import HEALTH_VARIABLE
from fakes.fronts.process import ServerProcess

# Lower bounds are exact; upper bounds are what an unscaled duration would take, so that a slow machine passes.
SCALE = 0.05


@pytest.fixture
def client(model):
    clients = []

    def client(*args, **env):
        fixed = ["--model-path", str(model), "--time-scale", str(SCALE), "--log-level", "error"]
        server = ServerProcess([*fixed, *args], env=env)
        clients.append((server, httpx.Client(base_url=server.url, timeout=500)))
        return clients[-1][1]

    yield client
    for server, each in clients:
        each.close()
        server.stop()


def seconds(ask):
    began = time.monotonic()
    return ask(), (time.monotonic() - began) / SCALE


def test_health_looks_every_second_and_gives_up_after_twenty(client):
    engine = client()
    idle, took = seconds(lambda: engine.get("/health_generate"))
    assert (idle.status_code, took >= 1.0) == (200, True)
    assert engine.post("/pause_generation", json={"mode": "retract"}).status_code == 200
    paused, took = seconds(lambda: engine.get("/health"))
    assert paused.status_code == 503
    assert 20.0 - 0.5 <= took < 20.0 / SCALE


def test_without_its_generation_health_answers_and_health_generate_still_generates(client):
    engine = client(**{HEALTH_VARIABLE: "false"})
    engine.post("/pause_generation", json={"mode": "retract"})  # so that no generation comes to an end
    assert engine.get("/health").status_code == 200
    generate, took = seconds(lambda: engine.get("/health_generate"))
    assert (generate.status_code, took >= 19.5) == (503, True)


def test_the_watchdog_kills_after_its_scaled_timeout(client):
    """A batch that an in-place pause holds; half as long again passes before it looks (utils/watchdog.py:103)."""
    engine = client("--time-scale", str(SCALE / 10))
    engine.post("/slow_down", json={"forward_sleep_time": 20.0})  # or it is over before the pause comes
    held = {"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}}
    with engine.stream("POST", "/generate", json={**held, "stream": True}) as running:
        lines = running.iter_lines()
        next(lines)
        began = time.monotonic()
        assert engine.post("/pause_generation", json={"mode": "in_place"}).status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
        took = (time.monotonic() - began) / (SCALE / 10)
    assert 300.0 * 1.4 <= took < 300.0 * 1.5 / SCALE


def test_death_comes_after_the_profiles_scaled_delay(client):
    engine = client()
    began = time.monotonic()
    with pytest.raises(httpx.RemoteProtocolError):
        engine.post("/resume_memory_occupation", json={})
    assert 5.0 <= (time.monotonic() - began) / SCALE < 5.0 / SCALE
