"""release and resume: tags, deaths, and what is left of the weights."""

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import Raised
from tests.fakes.engine.control.driver import Driver, generate_body


@pytest.mark.parametrize("version", ORDER)
def test_without_the_saver_content_stays_and_tags_still_kill(version: str) -> None:
    engine = Driver(version)
    tokens = engine.generate()
    for _ in range(2):
        reply = engine.call("release_memory_occupation", {})
        assert (reply.status, reply.body) == (200, None)
    assert engine.generate() == tokens
    assert engine.call("resume_memory_occupation", {}).body is None
    assert engine.call("resume_memory_occupation", {}).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("KeyError", "'kv_cache'")


def test_tags_are_tracked_one_by_one_and_unknown_ones_accepted() -> None:
    engine = Driver("0.5.23")
    assert engine.call("release_memory_occupation", {"tags": ["weights", "bogus"]}).status == 200
    assert engine.named("memory")[-1] == {"tags": ["bogus", "weights"]}
    assert engine.call("begin_weight_update", {}).status == 200
    assert engine.call("end_weight_update", {}).status == 200
    assert engine.call("resume_memory_occupation", {"tags": ["weights"]}).status == 200
    assert engine.named("memory")[-1] == {"tags": ["bogus"]}
    assert engine.call("resume_memory_occupation", {"tags": ["kv_cache"]}).ending == "dropped"


def test_a_partial_release_makes_a_whole_resume_fatal() -> None:
    engine = Driver("0.5.23")
    engine.call("release_memory_occupation", {"tags": ["kv_cache"]})
    assert engine.call("resume_memory_occupation", {}).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("KeyError", "'weights'")


@pytest.mark.parametrize("mode", ["none", "retract", "in_place"])
@pytest.mark.parametrize("version", ORDER)
def test_release_wants_an_idle_engine(version: str, mode: str) -> None:
    engine = Driver(version)
    engine.start("generate", generate_body(80))
    engine.advance(0.1)
    if mode != "none":
        engine.call("pause_generation", {"mode": mode})
    reply = engine.call("release_memory_occupation", {})
    if mode == "retract" and PROFILES[version].idle_ignores_queue_when_paused:
        assert reply.status == 200
        return
    assert reply.ending == "dropped"
    assert engine.died is not None
    message = "release_memory_occupation should be called only when server is idle."
    assert engine.died.error == Raised("AssertionError", message)


def test_release_of_the_kv_cache_flushes_it() -> None:
    engine = Driver("0.5.23")
    engine.generate()
    engine.call("release_memory_occupation", {"tags": ["kv_cache"]})
    assert engine.named("flush")[-1]["ok"]
    engine.call("resume_memory_occupation", {"tags": ["kv_cache"]})
    assert engine.call("generate", generate_body()).body["meta_info"]["cached_tokens"] == 0


def saver(**more: object) -> Driver:
    return Driver("0.5.21", device="cuda", enable_memory_saver=True, **more)


def refit(engine: Driver) -> None:
    engine.call("begin_weight_update", {})
    assert engine.update(seed=0).status == 200
    engine.call("end_weight_update", {})


def test_with_the_saver_resumed_weights_are_zeros_until_a_whole_update() -> None:
    engine = saver()
    tokens = engine.generate()
    engine.call("release_memory_occupation", {})
    engine.call("resume_memory_occupation", {})
    assert engine.generate() == [0] * 8
    assert engine.named("serve")[-1]["torn"]
    refit(engine)
    assert engine.generate() == tokens
    assert not engine.named("serve")[-1]["torn"]


def test_strict_memory_poisons_and_the_cpu_backup_restores() -> None:
    engine = saver(strict_memory=True)
    tokens = engine.generate()
    for _ in range(2):
        engine.call("release_memory_occupation", {})
        engine.call("resume_memory_occupation", {})
        assert engine.generate() not in (tokens, [0] * 8)
    engine = saver(enable_weights_cpu_backup=True)
    engine.call("release_memory_occupation", {})
    engine.call("resume_memory_occupation", {})
    assert engine.generate() == tokens


@pytest.mark.parametrize(
    ("op", "body", "error"),
    [
        (
            "release_memory_occupation",
            {},
            "[torch_memory_saver.cpp] Cannot pause allocation that is not active. tag=kv_cache",
        ),
        ("generate", generate_body(), "CUDA error: an illegal memory access was encountered"),
    ],
)
def test_with_the_saver_touching_released_memory_kills(op: str, body: dict[str, object], error: str) -> None:
    engine = saver()
    engine.call("release_memory_occupation", {})
    assert engine.call(op, body).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error.message == error


def test_a_double_release_takes_the_watchdogs_second_longer() -> None:
    engine = saver()
    engine.call("release_memory_occupation", {})
    assert engine.call("release_memory_occupation", {}).elapsed_s == pytest.approx(6.4, abs=0.2)


def test_an_update_of_released_weights_kills_and_reads_are_refused() -> None:
    engine = saver()
    engine.call("release_memory_occupation", {"tags": ["weights"]})
    assert engine.call("get_weights_by_name", {"name": "model.norm.weight"}).status == 400
    assert engine.call("weights_checker", {"action": "checksum"}).status == 400
    engine.call("begin_weight_update", {})
    assert engine.update().ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("AcceleratorError", "CUDA error: invalid argument")
