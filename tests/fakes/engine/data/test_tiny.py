from __future__ import annotations

import json

import numpy as np
import pytest

from fakes import tiny


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shape", tiny.SHAPES)
def test_a_folder_comes_back_as_it_was_written(tmp_path, shape, tied):
    config = tiny.tiny_config(shape, tied)
    weights = tiny.tiny_weights(config, 3)
    read_config, read = tiny.read_model(tiny.write_model(tmp_path / "model", config, weights))
    assert read_config == config
    assert list(read) == list(weights)
    for name, tensor in weights.items():
        assert read[name].dtype == tensor.dtype
        assert (read[name] == tensor).all()


def test_safetensors_reads_what_we_write(tmp_path):
    numpy_reader = pytest.importorskip("safetensors.numpy")
    config = tiny.tiny_config("llama", dtype="float32")
    weights = tiny.tiny_weights(config, 0)
    tiny.write_model(tmp_path, config, weights)
    read = numpy_reader.load_file(tmp_path / "model.safetensors")
    assert set(read) == set(weights)
    assert all((read[name] == tensor).all() for name, tensor in weights.items())


def test_the_same_seed_gives_the_same_bytes_and_another_other_ones():
    config = tiny.tiny_config()
    a, b, c = (tiny.tiny_weights(config, seed) for seed in (1, 1, 2))
    assert all((a[name] == b[name]).all() for name in a)
    assert all((a[name] != c[name]).any() for name in a)


def test_shapes_have_what_their_family_has():
    assert "model.layers.0.self_attn.q_proj.bias" in tiny.hf_shapes(tiny.tiny_config("qwen2"))
    assert "model.layers.0.self_attn.k_norm.weight" in tiny.hf_shapes(tiny.tiny_config("qwen3"))
    assert "lm_head.weight" not in tiny.hf_shapes(tiny.tiny_config("llama", tied=True))
    assert "model.layers.0.self_attn.o_proj.bias" in tiny.hf_shapes(tiny.tiny_config("llama", attention_bias=True))


def test_an_unknown_shape_is_named():
    with pytest.raises(ValueError, match="unknown model shape 'gpt'; expected one of llama, qwen2, qwen3"):
        tiny.tiny_config("gpt")


def test_a_folder_that_cannot_be_served_says_why(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ValueError, match="model_type 'bert' cannot be served"):
        tiny.read_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(tiny.tiny_config()))
    with pytest.raises(FileNotFoundError, match=r"no \*\.safetensors"):
        tiny.read_model(tmp_path)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


def packed(header, data=b"\0" * 8):
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff" * 8,
        packed(entry())[:-1],
        packed(entry(dtype="F13")),
        packed(entry(shape=(3,))),
        packed(entry(offsets=(4, 16))),
        packed(entry(offsets=(-8, 0))),
        packed({"x": 1}),
        packed([1]),
        (6).to_bytes(8, "little") + b"{nope}",
    ],
)
def test_a_broken_file_is_one_clear_error(tmp_path, raw):
    (tmp_path / "a.safetensors").write_bytes(raw)
    with pytest.raises(ValueError, match=r"a\.safetensors is not a safetensors file that can be served"):
        tiny.read_tensors(tmp_path)


def test_several_files_are_read_together(tmp_path):
    for name in ("a", "b"):
        tiny.write_tensors(tmp_path / f"{name}.safetensors", {name: np.ones(2, np.float32)})
    assert set(tiny.read_tensors(tmp_path)) == {"a", "b"}
