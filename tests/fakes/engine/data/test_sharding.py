"""Where every HF tensor ends up, against plain slicing: model kinds, head counts, tensor-parallel sizes, devices."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.layout import Param, Part, check_partition, device_layout, head_dim_of, kv_heads_per_rank
from fakes.engine.weights import RankWeights, get_weights_by_name
from fakes.tiny import tiny_config, tiny_weights

CONFIGS = {
    "llama": tiny_config("llama", False, "float32"),
    "llama tied": tiny_config("llama", True, "float32"),
    "llama bias": tiny_config("llama", False, "float32", attention_bias=True),
    "qwen2": tiny_config("qwen2", False, "float32"),
    "qwen2 bias": tiny_config("qwen2", False, "float32", attention_bias=True),
    "qwen3": tiny_config("qwen3", False, "float32"),
    "qwen3 bias": tiny_config("qwen3", False, "float32", attention_bias=True),
    "no head_dim": tiny_config("llama", False, "float32", head_dim=None),
    "wide heads": tiny_config("qwen3", False, "float32", head_dim=32),
    "all kv heads": tiny_config("llama", False, "float32", num_key_value_heads=4),
    "one kv head": tiny_config("llama", False, "float32", num_key_value_heads=1),
    "odd vocabulary": tiny_config("llama", False, "float32", vocab_size=500),
    "small vocabulary": tiny_config("llama", False, "float32", vocab_size=60),
    "eight heads": tiny_config("llama", False, "float32", num_attention_heads=8, head_dim=8),
    "twelve heads": tiny_config(
        "llama",
        False,
        "float32",
        num_attention_heads=12,
        num_key_value_heads=6,
        head_dim=8,
        intermediate_size=120,
        vocab_size=500,
    ),
}


def expected(config, full, rank, tp):
    """The device parameters of one rank, cut by hand (layers/linear.py, vocab_parallel_embedding.py:273 @0.5.23)."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config["head_dim"] or config["hidden_size"] // heads
    own = max(kv_heads // tp, 1)
    first = rank * kv_heads // tp if tp >= kv_heads else rank * own

    def cut(name, start, size, axis=0):
        return np.take(full[name], range(start, start + size), axis=axis)

    def vocab(name):
        rows = len(full[name])
        step = 64 if -(-rows // 64) * 64 % tp == 0 else 64 * tp
        padded = np.zeros((-(-rows // step) * step, config["hidden_size"]), np.float32)
        padded[:rows] = full[name]
        return padded[len(padded) // tp * rank :][: len(padded) // tp]

    out = {}
    for name, value in full.items():
        head, _, tail = name.rpartition(".")
        block, _, part = head.rpartition(".")
        size = len(value) // tp
        if part == "q_proj":
            kv = [cut(f"{block}.{x}_proj.{tail}", first * dim, own * dim) for x in "kv"]
            out[f"{block}.qkv_proj.{tail}"] = np.concatenate([cut(name, rank * size, size), *kv])
        elif part == "gate_proj":
            up = cut(f"{block}.up_proj.{tail}", rank * size, size)
            out[f"{block}.gate_up_proj.{tail}"] = np.concatenate([cut(name, rank * size, size), up])
        elif part in ("o_proj", "down_proj") and value.ndim == 2:
            width = value.shape[1] // tp
            out[name] = cut(name, rank * width, width, axis=1)
        elif part in ("embed_tokens", "lm_head"):
            out[name] = vocab(name)
        elif part not in ("k_proj", "v_proj", "up_proj"):
            out[name] = value
    return out


def fitting(config):
    for tp in (1, 2, 3, 4, 6, 8):
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        if heads % tp == 0 and (kv_heads % tp == 0 or tp % kv_heads == 0):
            yield tp


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_every_rank_holds_its_slices(config, device):
    full = tiny_weights(config, 3)
    for tp in fitting(config):
        for rank in range(tp):
            held = RankWeights(config, rank, tp, "float32", device=device)
            assert held.load(full.items()) == list(full)
            wanted = expected(config, full, rank, tp)
            assert {name: param.shape for name, param in held.params.items()} == {
                name: value.shape for name, value in wanted.items()
            }
            for name, value in wanted.items():
                assert (held.params[name] == value).all(), (name, tp, rank)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_a_tensor_under_its_fused_name_lands_where_its_parts_do(config):
    """linear.py:1373, 753 @0.5.23; only Llama's loader takes the fused name (the others mangle it)."""
    if config["model_type"] != "llama":
        return
    full = tiny_weights(config, 3)
    fused = {}
    for name in full:
        for device, parts in (("qkv_proj", "q k v"), ("gate_up_proj", "gate up")):
            if f".{parts.split()[0]}_proj." in name:
                pieces = [full[name.replace(f".{parts.split()[0]}_proj.", f".{part}_proj.")] for part in parts.split()]
                fused[name.replace(f".{parts.split()[0]}_proj.", f".{device}.")] = np.concatenate(pieces)
    for device in ("cpu", "cuda"):
        for tp in fitting(config):
            for rank in range(tp):
                held = RankWeights(config, rank, tp, "float32", device=device)
                assert held.load(fused.items()) == list(fused)
                wanted = expected(config, full, rank, tp)
                assert all((held.params[name] == wanted[name]).all() for name in fused)


def test_names_come_in_the_order_of_the_real_models_parameters():
    names = [name.removeprefix("model.layers.0.") for name in device_layout(tiny_config("qwen3"), 0, 1)]
    assert names[:10] == [
        "model.embed_tokens.weight",
        "self_attn.q_norm.weight",
        "self_attn.k_norm.weight",
        "self_attn.qkv_proj.weight",
        "self_attn.o_proj.weight",
        "mlp.gate_up_proj.weight",
        "mlp.down_proj.weight",
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
        "model.layers.1.self_attn.q_norm.weight",
    ]
    assert names[-2:] == ["model.norm.weight", "lm_head.weight"]
    biased = [*device_layout(CONFIGS["llama bias"], 0, 1)]
    assert biased[1:5] == [f"model.layers.0.self_attn.{x}" for x in (
        "qkv_proj.weight", "qkv_proj.bias", "o_proj.weight", "o_proj.bias",
    )]  # fmt: skip


def test_only_gate_up_asserts_without_a_text():
    layout = device_layout(tiny_config("llama"), 1, 2)
    assert [name for name, param in layout.items() if param.bare_assert] == [
        f"model.layers.{layer}.mlp.gate_up_proj.weight" for layer in (0, 1)
    ]
    gate_up = layout["model.layers.0.mlp.gate_up_proj.weight"]
    assert gate_up.parts == {0: Part(0, 64, 64, 128), 1: Part(64, 64, 64, 128)}
    assert Param((3,)) == Param((3,), "plain", {}, False, 0, 0, 0)


@pytest.mark.parametrize(
    ("kv_heads", "tp", "own", "sharing"),
    [(4, 1, 4, 1), (4, 2, 2, 1), (4, 4, 1, 1), (4, 8, 1, 2), (2, 8, 1, 4), (1, 1, 1, 1), (8, 2, 4, 1), (6, 2, 3, 1)],
)
def test_kv_heads_are_cut_or_shared(kv_heads, tp, own, sharing):
    assert kv_heads_per_rank({"num_key_value_heads": kv_heads}, tp) == (own, sharing)


def test_the_head_size_is_given_or_follows():
    sizes = {"hidden_size": 64, "num_attention_heads": 4}
    assert head_dim_of(sizes) == head_dim_of({**sizes, "head_dim": None}) == 16
    assert head_dim_of({**sizes, "head_dim": 128}) == 128


@pytest.mark.parametrize(
    ("heads", "kv_heads", "inter", "tp", "fits"),
    [
        (4, 2, 128, 1, True),
        (4, 2, 128, 4, True),
        (8, 4, 128, 8, True),
        (4, 2, 128, 0, False),
        (4, 2, 128, -1, False),
        (6, 2, 128, 4, False),
        (4, 2, 130, 4, False),
        (12, 3, 120, 2, False),
        (12, 4, 120, 6, False),
        (12, 3, 120, 3, True),
        (12, 3, 120, 6, True),
    ],
)
def test_which_partitions_fit(heads, kv_heads, inter, tp, fits):
    config = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": inter}
    if fits:
        check_partition(config, tp)
        return
    with pytest.raises(ValueError, match=f"^tp_size {tp} "):
        check_partition(config, tp)


@pytest.mark.parametrize("name", ["llama", "llama tied", "llama bias", "all kv heads", "no head_dim"])
@pytest.mark.parametrize("tp", [1, 2])
def test_weights_by_name_are_the_first_ranks_or_gathered(name, tp):
    """models/llama.py:799 @0.5.23: fused parts of rank 0, o_proj and down_proj of all ranks, the rest of rank 0."""
    config = CONFIGS[name]
    full = tiny_weights(config, 3)
    ranks = [RankWeights(config, rank, tp, "float32") for rank in range(tp)]
    for rank in ranks:
        rank.load(full.items())
    for hf, value in full.items():
        found = get_weights_by_name(ranks, hf, 100_000)
        if hf.endswith(("o_proj.weight", "down_proj.weight")) or "norm" in hf or tp == 1:
            assert found == value.tolist()
        elif hf.endswith("o_proj.bias"):
            assert found is None, "torch.cat of one-dimensional shards along dim 1"
        else:
            assert found == value[: len(value) // tp].tolist(), hf
        if found is not None:
            assert get_weights_by_name(ranks, hf, 3) == found[:3]
    assert get_weights_by_name(ranks, "lm_head.weight", 2) is not None
    assert get_weights_by_name(ranks, "model.layers.7.self_attn.q_proj.weight", 2) is None
    assert len(get_weights_by_name(ranks, "model.norm.weight")) == 64


def test_by_default_a_hundred_rows():
    rank = RankWeights(CONFIGS["llama"], 0, 1, "float32")
    assert len(rank.get_by_name("model.embed_tokens.weight")) == 100
    assert len(get_weights_by_name([rank], "model.embed_tokens.weight")) == 100
    assert rank.get_by_name("model.norm.weight", 2) == [0.0, 0.0]
    assert RankWeights(CONFIGS["qwen2"], 0, 1, "float32").get_by_name("model.norm.weight") is None


def test_weights_by_name_cut_with_the_head_size_of_the_hidden_size():
    """models/llama.py:799 @0.5.23 takes hidden_size // heads, whatever head_dim says: cut wrong, or out of range."""
    config = tiny_config("llama", False, "float32", head_dim=8)
    rank = RankWeights(config, 0, 1, "float32")
    rank.load(tiny_weights(config, 3).items())
    qkv = rank.params["model.layers.0.self_attn.qkv_proj.weight"]
    assert rank.get_by_name("model.layers.0.self_attn.q_proj.weight") == qkv.tolist()
    assert rank.get_by_name("model.layers.0.self_attn.k_proj.weight") is None
