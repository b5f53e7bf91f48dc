from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.loading import LoadError
from fakes.engine.weights import RankWeights, get_weights_by_name
from fakes.tiny import hf_shapes, tiny_config, tiny_weights

LLAMA = tiny_config("llama")
P = "model.layers.0."


def loaded(config=LLAMA, tp=1, seed=0, dtype="bfloat16", device="cpu"):
    ranks = [RankWeights(config, rank, tp, dtype, device=device) for rank in range(tp)]
    for rank in ranks:
        rank.load(tiny_weights(config, seed).items())
    return ranks


def test_all_names_of_a_checkpoint_are_applied_and_nothing_is_left_unset():
    for shape in ("llama", "qwen2", "qwen3"):
        config = tiny_config(shape)
        rank = RankWeights(config, 0, 1, "bfloat16")
        assert rank.load(tiny_weights(config, 0).items()) == list(hf_shapes(config))
        assert all(param.any() for param in rank.params.values())


def test_unknown_names_are_skipped_and_not_counted_as_applied():
    (rank,) = loaded()
    before = rank.state_id()
    named = [("model.nothing.weight", np.ones(4)), (P + "self_attn.q_proj.bias", np.ones(64))]
    assert rank.load(named) == []
    assert rank.state_id() == before


def test_two_ranks_hold_the_halves_of_one():
    (whole,), halves = loaded(), loaded(tp=2)
    qkv = whole.params[P + "self_attn.qkv_proj.weight"]
    q, k, v = qkv[:64], qkv[64:96], qkv[96:]
    for rank, half in enumerate(halves):
        expected = np.concatenate([q[rank * 32 :][:32], k[rank * 16 :][:16], v[rank * 16 :][:16]])
        assert (half.params[P + "self_attn.qkv_proj.weight"] == expected).all()
        o_proj = whole.params[P + "self_attn.o_proj.weight"]
        assert (half.params[P + "self_attn.o_proj.weight"] == o_proj[:, rank * 32 : rank * 32 + 32]).all()
        gate_up = whole.params[P + "mlp.gate_up_proj.weight"]
        pair = np.concatenate([gate_up[rank * 64 :][:64], gate_up[128 + rank * 64 :][:64]])
        assert (half.params[P + "mlp.gate_up_proj.weight"] == pair).all()
        embed = whole.params["model.embed_tokens.weight"]
        assert (half.params["model.embed_tokens.weight"] == embed[rank * 256 : rank * 256 + 256]).all()


def test_kv_heads_are_replicated_when_there_are_more_ranks_than_heads():
    ranks = loaded(tp=4)
    rows = [rank.params[P + "self_attn.qkv_proj.weight"][16:] for rank in ranks]
    assert (rows[0] == rows[1]).all()
    assert (rows[2] == rows[3]).all()
    assert not (rows[0] == rows[2]).all()


def test_a_vocabulary_that_is_no_multiple_of_64_is_padded_with_zeros():
    config = tiny_config("llama", vocab_size=500)
    (rank,) = loaded(config)
    embed = rank.params["model.embed_tokens.weight"]
    assert embed.shape == (512, 64)
    assert embed[:500].any()
    assert not embed[500:].any()


@pytest.mark.parametrize("tp", [3, 8])
def test_a_partition_that_does_not_fit_is_one_clear_line(tp):
    with pytest.raises(ValueError, match=f"tp_size {tp} "):
        RankWeights(LLAMA, 0, tp, "bfloat16")


def test_on_a_gpu_a_short_qkv_weight_is_refused_that_the_cpu_engine_pads():
    short = [(P + "self_attn.q_proj.weight", np.ones((48, 64), np.float32))]
    (cpu,) = loaded()
    cpu.load(short)
    assert not cpu.params[P + "self_attn.qkv_proj.weight"][48:64].any()
    (gpu,) = loaded(device="cuda")
    with pytest.raises(LoadError, match=r"start \(0\) \+ length \(64\) exceeds dimension size \(48\)\."):
        gpu.load(short)


def test_on_a_gpu_row_parallel_and_gate_up_weights_are_padded_too():
    (gpu,) = loaded(device="cuda")
    gpu.load([(P + "mlp.down_proj.weight", np.ones((64, 100), np.float32))])
    assert not gpu.params[P + "mlp.down_proj.weight"][:, 100:].any()
    gpu.load([(P + "mlp.up_proj.weight", np.ones((100, 64), np.float32))])
    assert not gpu.params[P + "mlp.gate_up_proj.weight"][228:].any()


def test_what_came_before_a_bad_tensor_stays_applied():
    (rank,) = loaded()
    before = rank.state_id()
    with pytest.raises(LoadError):
        rank.load([("model.norm.weight", np.zeros(64, np.float32)), ("model.norm.weight", np.zeros(3, np.float32))])
    assert not rank.params["model.norm.weight"].any()
    assert rank.state_id() != before


def test_direct_takes_device_names_and_local_shards():
    _, second = loaded(tp=2)
    name = P + "self_attn.qkv_proj.weight"
    assert second.load_direct([(name, np.ones((64, 64), np.float32))]) == [name]
    assert (second.params[name] == 1).all()
    with pytest.raises(LoadError) as unknown:
        second.load_direct([(P + "self_attn.q_proj.weight", np.ones((32, 64), np.float32))])
    assert (unknown.value.type, unknown.value.message) == ("KeyError", f"'{P}self_attn.q_proj.weight'")
    with pytest.raises(LoadError) as shape:
        second.load_direct([(name, np.ones((128, 64), np.float32))])
    assert shape.value.message == (
        "Attempted to load weight (torch.Size([128, 64])) into parameter (torch.Size([64, 64]))"
    )


def test_the_state_id_follows_the_content_and_nothing_else():
    (a,), (b,), (other,) = loaded(seed=1), loaded(seed=1), loaded(seed=2)
    assert a.state_id() == b.state_id() != other.state_id()
    whole = dict(tiny_weights(LLAMA, 1))
    for name, tensor in whole.items():
        changed = tensor.copy()
        changed.flat[-1] += 1
        a.load([(name, changed)])
        assert a.state_id() != b.state_id(), name
        a.load([(name, tensor)])
        assert a.state_id() == b.state_id(), name


def test_zero_poison_snapshot_and_restore():
    (rank,) = loaded()
    before, kept = rank.state_id(), rank.snapshot()
    rank.zero()
    assert not any(param.any() for param in rank.params.values())
    rank.poison(1)
    poisoned = rank.state_id()
    rank.poison(1)
    assert rank.state_id() == poisoned != before
    rank.restore(kept)
    assert rank.state_id() == before


def test_get_weights_by_name_cuts_fused_parameters_and_gathers_row_parallel_ones():
    weights = tiny_weights(LLAMA, 0)
    ranks = loaded(tp=2)
    k = get_weights_by_name(ranks, P + "self_attn.k_proj.weight", 3)
    assert k == weights[P + "self_attn.k_proj.weight"][:3].astype(np.float32).tolist()
    down = get_weights_by_name(ranks, P + "mlp.down_proj.weight", 100)
    assert down == weights[P + "mlp.down_proj.weight"].astype(np.float32).tolist()
    assert len(get_weights_by_name(ranks, P + "self_attn.qkv_proj.weight", 2)) == 2
    assert get_weights_by_name(ranks, "nope") is None


def test_get_weights_by_name_is_llamas_alone_and_knows_a_tied_head():
    for shape in ("qwen2", "qwen3"):
        (rank,) = loaded(tiny_config(shape))
        assert rank.get_by_name("model.norm.weight", 4) is None
    tied = tiny_config("llama", tied=True)
    (rank,) = loaded(tied)
    assert rank.get_by_name("lm_head.weight", 1) == rank.get_by_name("model.embed_tokens.weight", 1) is not None


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ("llama", "AttributeError: 'int' object has no attribute 'endswith'"),
        ("qwen2", "TypeError: expected string or bytes-like object, got 'int'"),
        ("qwen3", "AttributeError: 'int' object has no attribute 'startswith'"),
    ],
)
def test_a_name_that_is_no_string_dies_of_its_first_use(shape, error):
    (rank,) = loaded(tiny_config(shape))
    with pytest.raises(LoadError, match=error):
        rank.load([(7, np.ones(4))])
    with pytest.raises(LoadError, match="KeyError: 7"):
        rank.load_direct([(7, np.ones(4))])
