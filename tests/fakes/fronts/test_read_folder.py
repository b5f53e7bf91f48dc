"""What an engine finds in a folder that it is told to load, and what it says or dies of where it finds nothing good."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.protocol import EngineConfig, ReadDisk
from fakes.fronts.io import read_folder
from fakes.tiny import tiny_config, tiny_weights, write_tensors
from fakes.world import World

CONFIG = tiny_config("llama")
OLD, NEW = tiny_weights(CONFIG, 0), tiny_weights(CONFIG, 1)
NORM = "model.norm.weight"


@pytest.fixture
def world():
    with World(0) as made:
        made.add_engine("e0", EngineConfig(profile="0.5.23"), OLD, CONFIG)
        yield made


def update(world, path, **more):
    return world.call("e0", "POST", "/update_weights_from_disk", {"model_path": str(path), **more})


def norm(world):
    return world.call("e0", "POST", "/get_weights_by_name", {"name": NORM}).body


def test_nothing_but_tensors_is_looked_at(tmp_path):
    write_tensors(tmp_path / "b.safetensors", {"b": np.ones(2, np.float32)})
    write_tensors(tmp_path / "a.safetensors", {"a": np.zeros(2, np.float32)})
    (tmp_path / "config.json").write_text("{")
    assert [name for name, _ in read_folder(ReadDisk(id=1, path=str(tmp_path)))] == ["a", "b"]


def test_a_part_of_a_set_without_a_config_is_loaded(world, tmp_path):
    write_tensors(tmp_path / "model.safetensors", {NORM: NEW[NORM]})
    outcome = update(world, tmp_path, weight_version="7")
    assert (outcome.status, outcome.body["message"]) == (
        200, "Succeeded to update model weights. Weight version updated to 7.",
    )  # fmt: skip
    assert norm(world) == NEW[NORM].astype(np.float32).tolist()
    assert world.call("e0", "GET", "/model_info").body["model_path"] == str(tmp_path)


def test_an_empty_folder_is_refused(world, tmp_path):
    outcome = update(world, tmp_path)
    text = f"Failed to get weights iterator: Cannot find any model weights with `{tmp_path}`."
    assert (outcome.status, outcome.body["message"]) == (400, text)
    assert norm(world) == OLD[NORM].astype(np.float32).tolist()


@pytest.mark.parametrize("kind", ["short", "garbage"])
def test_what_cannot_be_loaded_kills_as_the_rollback_meets_it_again(world, tmp_path, kind):
    if kind == "short":
        write_tensors(tmp_path / "model.safetensors", {NORM: NEW[NORM][:32]})
    else:
        (tmp_path / "model.safetensors").write_bytes(b"\0" * 64)
    assert update(world, tmp_path).ending == "dropped"
    assert not world.engines["e0"].alive
