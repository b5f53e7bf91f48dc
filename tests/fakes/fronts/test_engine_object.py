"""SGLang's Engine object over the real fake: what a trainer in the same process sees."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from fakes.engine.protocol import EngineConfig
from fakes.fronts.inprocess import Engine, EngineDied, Server
from fakes.fronts.tensors import as_array
from fakes.tiny import tiny_config, tiny_weights, write_model
from fakes.trace import Fact, TraceWriter
from fakes.trainer.registry import ExportRegistry
from fakes.world import World

CONFIG = tiny_config("llama", False, "bfloat16")
PROMPT, GREEDY = [3, 1, 4, 1, 5], {"max_new_tokens": 6, "temperature": 0}


@pytest.fixture
def world():
    with World(trace=TraceWriter()) as world:
        yield world


def engine_of(world, version="0.5.23", seed=0, tp=2, name="e0"):
    return Engine(
        world, world.add_engine(name, EngineConfig(profile=version, tp_size=tp), tiny_weights(CONFIG, seed), CONFIG)
    )


def tokens(engine):
    return engine.generate(input_ids=PROMPT, sampling_params=GREEDY)["output_ids"]


@pytest.mark.parametrize("version", ["0.5.20", "0.5.23"])
def test_a_refit_makes_it_the_engine_that_was_started_with_these_weights(world, version):
    engine, other = engine_of(world, version), engine_of(world, version, seed=1, name="e1")
    before = tokens(engine)
    if hasattr(engine, "begin_weight_update"):
        assert engine.begin_weight_update() == (True, "Success")
    assert engine.update_weights_from_tensor(list(tiny_weights(CONFIG, 1).items())) == (True, "Success")
    if hasattr(engine, "end_weight_update"):
        assert engine.end_weight_update() == (True, "Success")
    assert tokens(engine) == tokens(other) != before


def test_a_refusal_is_a_tuple_not_an_exception(world):
    engine = engine_of(world)
    refusal = "no weight-update session is open; call begin_weight_update() first"
    assert engine.end_weight_update() == (False, refusal)


def test_the_http_front_and_the_engine_object_are_one_engine(world):
    engine = engine_of(world)
    server = Server(world, engine.engine)
    assert engine.begin_weight_update() == (True, "Success")
    refused = server.request("POST", "/begin_weight_update", {})
    assert (refused.status, refused.body["success"]) == (400, False)


def test_pause_and_continue_through_the_tokenizer_manager(world):
    engine = engine_of(world)
    world.run(engine.tokenizer_manager.pause_generation({"mode": "retract"}))
    waiting = Server(world, engine.engine).start("POST", "/generate", {"input_ids": PROMPT, "sampling_params": GREEDY})
    assert waiting.result(30.0).ending == "timeout"
    world.run(engine.tokenizer_manager.continue_generation({}))
    assert waiting.result().ok


def test_the_rest_of_sglangs_surface(world, tmp_path):
    engine = engine_of(world)
    write_model(tmp_path, CONFIG, tiny_weights(CONFIG, 1))
    assert engine.update_weights_from_disk(str(tmp_path))[:2] == (True, "Succeeded to update model weights.")
    assert engine.get_model_info()["model_path"] == str(tmp_path)
    assert "tokenizer_path" not in engine.get_model_info()
    assert engine.get_server_info()["version"] == "0.5.23"
    assert len(engine.get_weights_by_name("model.norm.weight", truncate_size=4)) == 4
    assert engine.flush_cache().success
    assert engine.release_memory_occupation() is None
    assert engine.resume_memory_occupation(["weights", "kv_cache", "cuda_graph"]) is None
    assert engine.destroy_weights_update_group("g") == (False, "The group to be destroyed does not exist.")


def test_a_folder_that_is_none_is_refused_in_the_hubs_words(world):
    success, message, paused = engine_of(world).update_weights_from_disk("/nonexistent")
    assert (success, paused) == (False, 0)
    assert message == (
        "Failed to get weights iterator: Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot start "
        "or end with '-' or '.' and the maximum length is 96: '/nonexistent'.."
    )


def test_get_model_info_came_with_0_5_18(world):
    assert not hasattr(engine_of(world, "0.5.17"), "get_model_info")
    assert engine_of(world, "0.5.18", name="e1").get_model_info()["weight_version"] == "default"


def test_a_payload_that_cannot_be_opened_kills_after_the_profiles_delay(world):
    engine = engine_of(world)
    engine.begin_weight_update()
    start = world.now
    with pytest.raises(EngineDied, match="UnpicklingError"):
        engine.update_weights_from_tensor([b"\x80\x04garbage", b"\x80\x04garbage"], load_format="flattened_bucket")
    assert world.now - start == pytest.approx(5.1, abs=0.2)
    kinds = [r.name for r in world.trace.records if isinstance(r, Fact) and r.name in ("raise", "die")]
    assert (kinds[0], kinds[-1]) == ("raise", "die")


def test_an_init_of_a_group_without_peers_blocks_the_engine_until_torch_gives_up(world):
    engine = engine_of(world)
    server = Server(world, engine.engine)
    joining = server.start("POST", "/init_weights_update_group", {
        "master_address": "127.0.0.1", "master_port": 29500, "rank_offset": 1, "world_size": 3, "backend": "gloo",
    }, timeout_s=3600)  # fmt: skip
    assert server.request("GET", "/server_info", timeout_s=60).ending == "timeout"
    outcome = joining.result()
    assert (outcome.status, outcome.body["success"]) == (400, False)
    assert (
        "The client socket has timed out after 1800000ms while trying to connect to (127.0.0.1, 29500)." in outcome.text
    )
    assert server.request("GET", "/server_info").ok


def test_a_resolver_learns_who_opens():
    class Resolver(ExportRegistry):
        opened: ClassVar[list[str]] = []

        def bind(self, engine):
            self.opened.append(engine)
            return super().bind(engine)

    with World(resolver=Resolver()) as world:
        engine = engine_of(world, "0.5.20", name="e7")
        assert engine.update_weights_from_tensor(list(tiny_weights(CONFIG, 1).items())) == (True, "Success")
    assert Resolver.opened == ["e7", "e7"]


def test_torch_tensors_are_taken_as_they_are():
    torch = pytest.importorskip("torch", reason="torch has no CPU build for this Python")
    for dtype in (torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.int64):
        tensor = torch.arange(6).reshape(2, 3).to(dtype)
        array = as_array(tensor)
        assert array.shape == (2, 3)
        assert np.array_equal(array.astype(np.float32), tensor.to(torch.float32).numpy())
    assert as_array(torch.tensor(2.5)).shape == ()
