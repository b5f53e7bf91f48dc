"""Pairs of a quantised refit: which tensors, how, and together."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fakes.engine.quantised import SCHEMES as LAYOUTS
from fakes.engine.quantised import checkpoint, quantise
from fakes.tiny import tiny_config, tiny_weights
from harness.reference.errors import BadSetup, BadState
from harness.reference.quantised import E4M3, NONE, Plan, groups, pair, parcels, plan_of

MX = Plan("mxfp8")
WEIGHTS = tiny_weights(tiny_config("qwen3", False, "bfloat16"), 1)
DOWN = "model.layers.0.mlp.down_proj.weight"


def matrix(rows=32, columns=64, kind=np.float32):
    return np.ones((rows, columns), dtype=kind)


@pytest.mark.parametrize("scheme", ["fp8", "mxfp8"])
def test_a_refit_sends_what_a_checkpoint_of_the_scheme_holds(scheme):
    sent = {name: tensor for group in groups(WEIGHTS.items(), Plan(scheme)) for name, tensor in group}
    held = checkpoint(WEIGHTS, scheme)
    assert list(sent) == list(held)
    assert all(np.array_equal(sent[name].view(np.uint8), held[name].view(np.uint8)) for name in held)
    assert Plan(scheme).names(WEIGHTS) == set(held)


def test_a_block_of_zeros_has_a_scale_all_the_same():
    for scheme in ("fp8", "mxfp8"):
        weight, scale = (tensor for _, tensor in pair("w", np.zeros((16, 32), np.float32), scheme))
        assert not weight.astype(np.float32).any()
        assert np.isfinite(scale.astype(np.float64)).all()
        assert np.array_equal(scale, quantise(np.zeros((16, 32), np.float32), LAYOUTS[scheme])[1])


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "lm_head.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.3.mlp.gate.weight",
        "model.layers.3.mlp.router.weight",
        "model.layers.3.mlp.shared_expert_gate.weight",
        "backbone.layers.3.mixer.gate.weight",
        "mtp.eh_proj.weight",
        "model.layers.0.indexer.weights_proj.weight",
        "model.layers.0.self_attn.q_proj.bias",
    ],
)
def test_what_no_family_quantises(name):
    assert not MX.covers(name, matrix())


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.3.mlp.experts.7.w1.weight",
        "model.layers.3.mlp.shared_expert.up_proj.weight",
        DOWN,
    ],
)
def test_what_every_family_quantises(name):
    assert MX.covers(name, matrix())
    assert not NONE.covers(name, matrix())


@pytest.mark.parametrize(
    ("tensor", "covered"),
    [
        (matrix(kind=ml_dtypes.bfloat16), True),
        (matrix(kind=np.float16), True),
        (matrix(kind=np.float64), False),
        (matrix(kind=E4M3), False),
        (np.ones(64, np.float32), False),
        (np.ones((2, 32, 64), np.float32), False),
        (matrix(columns=48), False),
        (matrix(rows=33), True),
    ],
)
def test_dtypes_and_shapes(tensor, covered):
    assert MX.covers(DOWN, tensor) is covered


def test_blocks_of_fp8_need_whole_rows_too():
    assert not Plan("fp8").covers(DOWN, matrix(rows=33))


@pytest.mark.parametrize(
    ("skip", "name", "covered"),
    [
        ("model.layers.0", DOWN, False),
        ("model.layers.0.", DOWN, False),
        ("model.layers.0", DOWN.replace("layers.0", "layers.01"), True),
        ("down_proj", DOWN, False),
        ("proj", DOWN, True),
        ("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj.weight", False),
        ("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.o_proj.weight", True),
        ("model.layers.0.mlp.up_proj", "model.layers.0.mlp.gate_proj.weight", False),
    ],
)
def test_modules_that_are_left_out_take_what_is_fused_with_them_along(skip, name, covered):
    assert Plan("mxfp8", (skip,)).covers(name, matrix()) is covered


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "quantisation is a mapping, not None"),
        ({}, "quantisation lacks scheme: a missing key is never a default"),
        ({"schema": "mxfp8", "b": 1}, "quantisation has unknown keys: b, schema"),
        ({"scheme": ""}, "quantisation scheme '' is none of bf16, fp8, mxfp8"),
        ({"scheme": "MXFP8"}, "quantisation scheme 'MXFP8' is none of bf16, fp8, mxfp8"),
        ({"scheme": "fp8", "skip": "a"}, "quantisation skip 'a' is no list of modules"),
        ({"scheme": "fp8", "skip": [1]}, r"quantisation skip \[1\] is no list of modules"),
    ],
)
def test_a_plan_is_never_guessed(given, says):
    with pytest.raises(BadSetup, match=f"^{says}$"):
        plan_of(given)


def test_a_plan():
    assert plan_of({"scheme": "mxfp8", "skip": ["a", "b"]}) == Plan("mxfp8", ("a", "b"))
    assert plan_of({"scheme": "bf16"}) == NONE


def test_pairs_that_come_as_pairs_are_kept_weight_first():
    made = pair(DOWN, matrix(), "mxfp8")
    told = list(groups([made[1], ("a.bias", matrix()), made[0]], MX))
    assert [[name for name, _ in group] for group in told] == [["a.bias"], [DOWN, DOWN + "_scale_inv"]]


@pytest.mark.parametrize("half", [0, 1])
def test_half_a_pair(half):
    made = pair(DOWN, matrix(), "mxfp8")
    with pytest.raises(BadState, match=rf"^the export has incomplete pairs: {DOWN}{'_scale_inv' * half}$"):
        list(groups([made[half]], MX))


def test_a_tensor_that_comes_twice():
    with pytest.raises(BadState, match=r"^the export has a duplicate: a$"):
        list(groups([("a", matrix()), ("b", matrix()), ("a", matrix())], MX))


def test_both_halves_count_and_stay_together():
    group = pair(DOWN, matrix(32, 64), "fp8")
    size = sum(tensor.nbytes for _, tensor in group)
    assert size == 32 * 64 + 2 * 2 * 4
    cut = list(parcels([group, group, group], 2 * size))
    assert [len(parcel.named) for parcel in cut] == [4, 2]
    assert [len(parcel.named) for parcel in parcels([group, group], 2 * size - 1)] == [2, 2]
    assert [parcel.last for parcel in cut] == [False, True]
    assert list(parcels([], 8)) == []


def test_the_widest_come_first_so_that_all_are_aligned():
    group = pair(DOWN, matrix(32, 64), "fp8")
    (parcel,) = parcels([[("a", np.ones(3, np.int8))], group, [("b", np.ones(3, ml_dtypes.bfloat16))]], 1 << 20)
    assert [name for name, _ in parcel.named] == [DOWN + "_scale_inv", "b", "a", DOWN]
    offset = 0
    for _, tensor in parcel.named:
        assert offset % tensor.dtype.itemsize == 0
        offset += tensor.nbytes
