"""Recipes: the same tensors wherever they are made."""

import base64
import io
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from real_runs.models import TinyModel
from real_runs.payloads import TorchPayloads
from real_runs.recipes import Entry, Recipe, fill, local_shards, strings, tensors
from real_runs.sequence import payload, whole

MODEL = TinyModel("llama", False, "float32", 2)
QWEN = TinyModel("qwen2", False, "float32", 2)
NORM = "model.norm.weight"
GATE = "model.layers.0.mlp.gate_proj.weight"


def test_a_seed_gives_all_weights():
    named = tensors(whole(1), MODEL, 0)

    assert named.keys() == MODEL.weights(1).keys()
    assert np.array_equal(named[NORM], MODEL.weights(1)[NORM])


def test_only_and_drop():
    assert list(tensors(Entry(seed=1, only=["*norm.weight"], drop=["*layer*"]), MODEL, 0)) == [NORM]


def test_change_oversize_rename_and_cast():
    named = tensors(Entry(seed=1, only=[GATE], oversize={GATE: 3}, rename={GATE: "x"}, cast="bfloat16"), MODEL, 0)
    changed = tensors(Entry(change={"y": ([2, 3], 0.5)}), MODEL, 0)["y"]

    assert {name: (array.shape, str(array.dtype)) for name, array in named.items()} == {"x": ((131, 64), "bfloat16")}
    assert changed.shape == (2, 3)
    assert (changed == 0.5).all()


def test_local_shards_are_what_each_rank_holds():
    whole_ = QWEN.weights(1)
    ranks = [local_shards(QWEN.config, whole_, rank, 2) for rank in (0, 1)]
    q, k, v = (whole_[f"model.layers.0.self_attn.{part}_proj.weight"] for part in "qkv")

    fused = ranks[1]["model.layers.0.self_attn.qkv_proj.weight"]
    assert np.array_equal(fused, np.concatenate([q[32:], k[16:], v[16:]]))
    assert ranks[0]["model.layers.0.self_attn.qkv_proj.bias"].shape == (64,)
    assert ranks[0]["model.layers.0.mlp.gate_up_proj.weight"].shape == (128, 64)
    assert ranks[0]["model.layers.0.self_attn.o_proj.weight"].shape == (64, 32)
    assert ranks[0]["model.embed_tokens.weight"].shape == (256, 64)
    assert np.array_equal(ranks[1][NORM], whole_[NORM])
    assert "model.layers.0.self_attn.k_proj.weight" not in ranks[0]


def test_one_string_per_rank_or_per_entry():
    def wrap(named, load_format):
        return f"{len(named)} {load_format}"

    assert strings(Recipe(each=whole(1), format="direct"), MODEL, wrap) == ["21 direct", "21 direct"]
    assert strings(Recipe(entries=[whole(1), Entry(raw="YWJj"), Entry()]), MODEL, wrap) == ["21 None", "YWJj", "0 None"]


def test_a_body_is_filled_wherever_a_recipe_stands():
    body = {"serialized_named_tensors": payload(whole(1)), "model_path": {"$model": 2}, "other": [1, {"a": None}]}
    filled = fill(body, MODEL, lambda named, load_format: "P", lambda seed: f"folder{seed}")

    assert filled == {"serialized_named_tensors": ["P", "P"], "model_path": "folder2", "other": [1, {"a": None}]}


# The payload as SGLang's side sees it, with its two names standing in for its classes.


class SeenUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module == "sglang.srt.weight_sync.tensor_bucket":
            assert name == "FlattenedTensorMetadata"
            return SimpleNamespace
        return super().find_class(module, name)


def opened(text):
    return SeenUnpickler(io.BytesIO(base64.b64decode(text, validate=True))).load()


@pytest.fixture
def payloads():
    made = TorchPayloads()
    yield made
    made.release()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_bucket_holds_the_tensors_back_to_back(payloads, dtype):
    torch = pytest.importorskip("torch", reason="payloads of real engines need torch")
    model = TinyModel("llama", False, dtype, 1)
    named = tensors(Entry(seed=1, only=["*norm*"]), model, 0)
    bucket = opened(payloads.one(named))
    start = 0
    for entry, (name, array) in zip(bucket["metadata"], named.items(), strict=True):
        part = bucket["flattened_tensor"][entry.start_idx : entry.end_idx].view(entry.dtype).reshape(entry.shape)
        assert (entry.name, entry.start_idx, entry.numel) == (name, start, array.nbytes)
        assert entry.shape == torch.Size(array.shape)
        assert part.float().numpy().tolist() == array.astype(np.float32).tolist()
        start = entry.end_idx
    assert bucket["flattened_tensor"].dtype == torch.uint8


@pytest.mark.parametrize("load_format", [None, "direct"])
def test_a_list_holds_names_and_tensors(payloads, load_format):
    pytest.importorskip("torch", reason="payloads of real engines need torch")
    named = {NORM: MODEL.weights(1)[NORM]}
    ((name, tensor),) = opened(payloads.one(named, load_format))

    assert name == NORM
    assert np.array_equal(tensor.numpy(), named[NORM])


def test_an_empty_bucket_is_refused_as_sglang_refuses_it(payloads):
    pytest.importorskip("torch", reason="payloads of real engines need torch")
    with pytest.raises(ValueError, match="Cannot create empty tensor bucket"):
        payloads.one({})


def test_the_memory_lives_until_release(payloads):
    pytest.importorskip("torch", reason="payloads of real engines need torch")
    text = payloads.one({NORM: MODEL.weights(1)[NORM]}, None)
    opened(text)
    payloads.release()

    with pytest.raises(RuntimeError, match="No such file or directory"):
        opened(text)


def test_release_leaves_no_file_of_what_nobody_opened(payloads):
    pytest.importorskip("torch", reason="payloads of real engines need torch")
    before = set(Path("/dev/shm").glob(f"torch_{os.getpid()}_*"))
    payloads.one({NORM: MODEL.weights(1)[NORM]}, None)
    payloads.one({NORM: MODEL.weights(1)[NORM]})
    assert len(set(Path("/dev/shm").glob(f"torch_{os.getpid()}_*")) - before) == 2
    payloads.release()

    assert set(Path("/dev/shm").glob(f"torch_{os.getpid()}_*")) <= before


def test_a_model_folder_is_written_once(tmp_path, monkeypatch):
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path))
    first = MODEL.folder(1)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "models").rglob("*") if path.is_file()}

    assert MODEL.folder(1) == first != MODEL.folder(2)
    assert all(path.stat().st_mtime_ns == at for path, at in written.items())
