"""Layouts at their edges: cuts that hold half a block, names of parameters, rows as the kernels have them."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.layout import Param, Part
from fakes.engine.quantised import (
    SCHEMES,
    Kernels,
    _check_cut,
    _cut,
    checkpoint,
    dequantise,
    quantise,
    quantised_layout,
    shuffle,
)

FP8 = SCHEMES["fp8"]


def test_no_scheme_is_the_weights_themselves():
    weights = {"model.layers.0.self_attn.q_proj.weight": np.ones((16, 32), np.float32)}
    held = checkpoint(weights, "")
    assert held == weights
    assert held is not weights


@pytest.mark.parametrize("shape", [(32,), (16, 16, 32), (24, 32), (16, 48), (8, 32)])
def test_a_matrix_of_broken_blocks_is_refused(shape):
    with pytest.raises(ValueError, match=r"has no whole blocks of 16 x 32$"):
        quantise(np.ones(shape, np.float32), FP8)
    if len(shape) == 2:
        with pytest.raises(ValueError, match=r"has no whole blocks of 16 x 32$"):
            dequantise(np.ones(shape, np.float32), np.ones((1, 1), np.float32), FP8)


def parts(*sizes):
    return {name: Part(0, size, 0, size) for name, size in zip("qkv", sizes, strict=False)}


@pytest.mark.parametrize(
    ("rows", "cut", "wrong"),
    [
        (48, parts(16, 16, 16), None),
        (32, parts(8, 24), 8),
        (32, parts(16, 8, 8), 8),
        (32, parts(24, 8), 24),
        (32, {}, None),
        (24, {}, 24),
    ],
)
def test_every_part_of_a_rank_holds_whole_blocks(rows, cut, wrong):
    """validate_block_quant_shapes (layers/quantization/fp8.py:570@0.5.23)."""
    param = Param((rows, 32), parts=cut)
    if wrong is None:
        _check_cut("w", param, FP8)
        return
    with pytest.raises(ValueError, match=rf"^Weight output_partition_size = {wrong} is not divisible by .* = 16\.$"):
        _check_cut("w", param, FP8)


def test_the_scale_of_a_part_is_cut_as_the_part_is():
    assert _cut(Part(16, 32, 48, 64), 16) == Part(1, 2, 3, 4)


def test_a_layout_has_every_parameter_and_a_scale_behind_each_module():
    layout = {name: Param((32, 32)) for name in ("a.qkv_proj.weight", "norm.weight", "a.down_proj.weight")}
    assert list(quantised_layout(layout, FP8)) == [
        "a.qkv_proj.weight", "a.qkv_proj.weight_scale_inv", "norm.weight", "a.down_proj.weight",
        "a.down_proj.weight_scale_inv",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a.weight", "a.weight_scale_inv", "a.weight_scale_inv_swizzled"])
def test_whose_numbers_a_parameter_takes_part_in(name):
    assert Kernels(FP8, {}, lambda name: None, {}).weight_of(name) == "a.weight"


def test_where_rows_go():
    """flashinfer's order, 32 rows at a time: 4 columns of 8."""
    there = shuffle(np.arange(64)).tolist()
    assert there[:9] == [0, 4, 8, 12, 16, 20, 24, 28, 1]
    assert there[32:] == [row + 32 for row in there[:32]]
