"""Numbers of quantised layouts, and what finalising makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.crash import Crash
from fakes.engine.loading import LoadError
from fakes.engine.quantised import (
    SCHEMES,
    checkpoint,
    dequantise,
    quantise,
    shuffle,
    swizzle,
    unshuffle,
    unswizzle,
)
from fakes.engine.weights import RankWeights
from fakes.tiny import tiny_config, tiny_weights

CONFIG = tiny_config("qwen3", False, "bfloat16")
QKV = "model.layers.0.self_attn.qkv_proj.weight"
DOWN = "model.layers.1.mlp.down_proj.weight"
ALL = tuple(name for name in SCHEMES if name != "fp8-online")


def master(seed: int = 1) -> dict[str, np.ndarray]:
    return tiny_weights(CONFIG, seed)


def rank(name: str, tp_rank: int = 0, tp: int = 2, seed: int = 1) -> RankWeights:
    made = RankWeights(CONFIG, tp_rank, tp, "bfloat16", device="cuda", quantisation=name)
    made.load(checkpoint(master(seed), name).items())
    made.finalise()
    return made


@pytest.mark.parametrize("name", ALL)
def test_a_matrix_comes_back_within_the_precision_of_its_format(name):
    scheme = SCHEMES[name]
    wide = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    small, scale = quantise(wide, scheme)
    assert (str(small.dtype), scale.dtype) == ("float8_e4m3fn", scheme.scale)
    back = dequantise(small, scale, scheme)
    largest = np.abs(wide).max()
    assert np.abs(back - wide).max() <= largest / 8
    again, same = quantise(back, scheme)
    assert np.array_equal(dequantise(again, same, scheme), back) or name in ("fp8", "fp8-tensor")


def test_powers_of_two_are_exact_and_zeros_stay():
    scheme = SCHEMES["mxfp8"]
    wide = np.array([[0.0] * 32 + [2.0**k for k in range(-4, 4)] * 4], dtype=np.float32)
    assert np.array_equal(dequantise(*quantise(wide, scheme), scheme), wide)


def test_a_block_of_fp8_reaches_the_largest_number():
    small, scale = quantise(np.full((16, 32), 3.0, np.float32), SCHEMES["fp8"])
    assert float(small.astype(np.float32).max()) == 448.0
    assert scale.tolist() == [[pytest.approx(3.0 / 448)]]


@pytest.mark.parametrize("shape", [(64, 2), (128, 4), (130, 5)])
def test_a_swizzle_has_an_inverse_and_moves_things(shape):
    scale = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape)
    flat = swizzle(scale)
    assert np.array_equal(unswizzle(flat, shape), scale)
    assert flat.size == -(-shape[0] // 128) * 128 * -(-shape[1] // 4) * 4
    assert not np.array_equal(flat[: scale.size], scale.reshape(-1))


def test_a_shuffle_has_an_inverse_which_is_not_itself():
    rows = np.arange(64).reshape(64, 1)
    assert np.array_equal(unshuffle(shuffle(rows)), rows)
    assert not np.array_equal(shuffle(shuffle(rows)), rows)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("tp", [1, 2])
def test_what_a_kernel_reads_is_the_checkpoint_cut_for_its_rank(name, tp):
    held = checkpoint(master(), name)
    prefix = "model.layers.0.self_attn."
    pairs = [held[f"{prefix}{part}_proj.weight"] for part in "qkv"]
    scales = [held[f"{prefix}{part}_proj.weight{SCHEMES[name].suffix}"] for part in "qkv"]
    last = tp - 1
    wide = [
        np.split(dequantise(weight, scale, SCHEMES[name]), tp)[last]
        for weight, scale in zip(pairs, scales, strict=True)
    ]
    made = rank(name, last, tp)
    assert np.array_equal(made.wide(QKV), np.concatenate(wide).astype(np.float64).T)
    down = "model.layers.1.mlp.down_proj.weight"
    whole = dequantise(held[down], held[down + SCHEMES[name].suffix], SCHEMES[name])
    assert np.array_equal(made.wide(down), np.split(whole, tp, axis=1)[last].astype(np.float64).T)


@pytest.mark.parametrize(
    ("name", "same"), [("fp8-tensor", False), ("fp8", True), ("mxfp8", True), ("mxfp8-trtllm", False)]
)
def test_finalising_again_what_is_final(name, same):
    made = rank(name)
    before = made.wide(QKV).copy(), made.state_id()
    made.finalise()
    assert (np.array_equal(made.wide(QKV), before[0]), made.state_id() == before[1]) == (same, same)


@pytest.mark.parametrize(("name", "fresh"), [("fp8", True), ("mxfp8", False), ("mxfp8-trtllm", False)])
def test_loaded_and_not_finalised(name, fresh):
    made = rank(name)
    made.load(checkpoint(master(2), name).items())
    assert np.array_equal(made.wide(DOWN), rank(name, seed=2).wide(DOWN)) is fresh
    made.finalise()
    assert np.array_equal(made.wide(DOWN), rank(name, seed=2).wide(DOWN))


def test_a_weight_of_another_dtype_is_cast_where_it_is_quantised():
    made, name = rank("mxfp8", tp=1), "model.layers.0.mlp.down_proj.weight"
    made.load([(name, np.full((64, 128), 3.0, np.float32))])
    assert np.array_equal(made.params[name].astype(np.float32), np.full((64, 128), 3.0))


@pytest.mark.parametrize("name", ["fp8", "fp8-tensor"])
def test_scales_that_never_came_make_no_number(name):
    made = RankWeights(CONFIG, 0, 2, "bfloat16", quantisation=name)
    made.load([item for item in checkpoint(master(), name).items() if "_scale" not in item[0]])
    made.finalise()
    assert np.isnan(made.wide(QKV)).all()


def test_a_llama_of_blocks_skips_its_scales():
    config = tiny_config("llama", False, "bfloat16")
    made = RankWeights(config, 0, 1, "bfloat16", quantisation="fp8")
    applied = made.load(checkpoint(tiny_weights(config, 1), "fp8").items())
    assert not [name for name in applied if name.endswith("_scale_inv")]
    assert np.isnan(made.wide(DOWN)).all()


def online(tp: int = 1) -> RankWeights:
    made = RankWeights(CONFIG, 0, tp, "bfloat16", quantisation="fp8-online")
    made.load(master().items())
    return made


def test_what_is_quantised_when_it_is_loaded():
    made = online()
    plain = made.wide(DOWN).copy()
    made.finalise()
    assert str(made.params[DOWN].dtype) == "float8_e4m3fn"
    assert made.params[DOWN + "_scale"].shape == (64, 1)
    close = np.abs(made.wide(DOWN) - plain).max(axis=0) / np.abs(plain).max(axis=0)
    assert close.max() < 1 / 16
    with pytest.raises(Crash, match="`x` is not contiguous"):
        made.finalise()


@pytest.mark.parametrize(("times", "shape"), [(1, None), (2, (128, 64)), (3, None), (4, (128, 64))])
def test_every_second_transpose_lies_across(times, shape):
    made = rank("fp8-tensor", tp=1)
    for _ in range(times - 1):
        made.finalise()
    assert made.across() == shape
    assert rank("mxfp8").across() is None


def test_what_is_not_quantised_is_cast_as_ever():
    made = rank("mxfp8")
    made.load([("model.norm.weight", np.full(64, 2.0, np.float32))])
    assert float(made.params["model.norm.weight"][0]) == 2.0


def test_a_rank_that_would_hold_half_a_block_is_refused():
    with pytest.raises(ValueError, match="input_size_per_partition = 16 is not divisible by weight quantization"):
        RankWeights(CONFIG, 0, 4, "bfloat16", quantisation="mxfp8")


def test_nothing_quantised_finalises_to_nothing():
    made = RankWeights(CONFIG, 0, 2, "bfloat16")
    made.load(master().items())
    before = made.state_id(), made.version
    made.finalise()
    assert (made.state_id(), made.version) == before


def test_a_restored_snapshot_brings_what_is_derived_with_it():
    made = rank("mxfp8-trtllm")
    kept, before = made.snapshot(), made.wide(QKV).copy()
    made.zero()
    assert not made.wide(QKV).any()
    made.restore(kept)
    assert np.array_equal(made.wide(QKV), before)


def test_one_scale_for_a_tensor_reaches_the_largest_number():
    small, scale = quantise(np.full((2, 3), -3.0, np.float32), SCHEMES["fp8-tensor"])
    assert (float(small.astype(np.float32).min()), scale.shape) == (-448.0, ())
    assert np.isfinite(quantise(np.zeros((2, 3), np.float32), SCHEMES["fp8-tensor"])[1])


@pytest.mark.parametrize(
    ("name", "shape", "kind", "text"),
    [
        ("self_attn.k_proj.weight", (32, 64), "AttributeError", "'Parameter' object has no attribute 'weight_loader'"),
        ("mlp.up_proj.weight_scale", (), "AttributeError", "'Parameter' object has no attribute 'weight_loader'"),
        (
            "mlp.down_proj.weight",
            (64, 128),
            "AssertionError",
            "Attempted to load weight (torch.Size([64, 128])) into parameter (torch.Size([64, 64]))",
        ),
        (
            "mlp.down_proj.weight_scale",
            (),
            "AssertionError",
            "Attempted to load weight (torch.Size([])) into parameter (torch.Size([64, 1]))",
        ),
    ],
)
def test_what_is_final_takes_no_more(name, shape, kind, text):
    made = rank("fp8-tensor")
    with pytest.raises(LoadError) as told:
        made.load([("model.layers.0." + name, np.zeros(shape, np.float32))])
    assert (told.value.type, told.value.message) == (kind, text)


def test_a_square_weight_lands_across_its_own_transpose():
    made = rank("fp8-tensor", tp=1)
    name = "model.layers.0.self_attn.o_proj.weight"
    held = checkpoint(master(2), "fp8-tensor")[name]
    made.load([(name, held)])
    assert np.array_equal(made.params[name], held.T)
    made.load([("model.norm.weight", np.ones(64, np.float32))])


def test_a_checksum_is_of_the_numbers_and_knows_no_scales_of_blocks():
    made = rank("fp8", tp=1)
    before = made.checksums()
    assert len(before) == len(made.params) - 8
    assert not [name for name in before if name.endswith("_scale_inv")]
    made.load([("model.layers.1.mlp.down_proj.weight_scale_inv", np.full((4, 4), 2.0, np.float32))])
    assert {name for name, found in made.checksums().items() if found != before[name]} == {DOWN}


def test_a_checksum_of_one_scale_for_a_tensor_and_of_nothing_quantised_is_plain():
    made = rank("fp8-tensor", tp=1)
    assert list(made.checksums()) == list(made.params)
    plain = RankWeights(CONFIG, 0, 2, "bfloat16")
    assert plain.checksums() == {name: plain.hash_of(name) for name in plain.params}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp.gate_proj.weight_scale_inv", (3, 3)),
        ("mlp.down_proj.weight_scale_inv", (3, 3)),
        ("mlp.down_proj.weight", (63, 128)),
    ],
)
def test_a_wrong_shape_of_what_is_quantised_is_a_bare_assertion(name, shape):
    made = rank("fp8", tp=1)
    with pytest.raises(LoadError) as told:
        made.load([("model.layers.0." + name, np.ones(shape, np.float32))])
    assert (told.value.type, told.value.message) == ("AssertionError", "")


def test_a_wrong_shape_of_what_is_not_quantised_is_told():
    with pytest.raises(LoadError, match="Attempted to load weight"):
        rank("fp8").load([("model.norm.weight", np.ones(63, np.float32))])
