"""What the parameters of a quantised model hold: before anything is loaded, as it is quantised, when it is final."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fakes.engine.layout import Param, Part
from fakes.engine.loading import LoadError
from fakes.engine.quantised import SCHEMES, UNLOADED, checkpoint, dequantise, quantise, quantised_layout
from fakes.engine.weights import RankWeights
from fakes.tiny import tiny_config, tiny_weights
from tests.fakes.engine.quantised.test_layouts import CONFIG, DOWN, QKV, master, rank

NORM = "model.norm.weight"
O_PROJ = "model.layers.0.self_attn.o_proj.weight"
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"


def test_one_scale_for_each_part_of_a_fused_layer() -> None:
    """PerTensorScaleParameter of len(output_partition_sizes) (layers/quantization/fp8.py:687@0.5.23)."""
    layout = {
        "a.gate_up_proj.weight": Param((64, 32), "fused", {0: Part(0, 32, 0, 32), 1: Part(32, 32, 0, 32)}),
        "norm.weight": Param((32,)),
        "a.down_proj.weight": Param((32, 32), "row"),
    }
    made = quantised_layout(layout, SCHEMES["fp8-tensor"])
    assert list(made) == [
        "a.gate_up_proj.weight", "a.gate_up_proj.weight_scale", "norm.weight", "a.down_proj.weight",
        "a.down_proj.weight_scale",
    ]  # fmt: skip
    assert made["a.gate_up_proj.weight_scale"] == Param((2,), "fused", {0: Part(0, 1, 0, 1), 1: Part(1, 1, 0, 1)})
    assert made["a.down_proj.weight_scale"] == Param((1,), "plain")
    assert quantised_layout(layout, SCHEMES["fp8-online"]) == layout


@pytest.mark.parametrize("value", [0.5, 448.0])
def test_the_scale_of_a_tensor_is_its_largest_number_by_448(value: float) -> None:
    assert quantise(np.full((2, 3), -value, np.float32), SCHEMES["fp8-tensor"])[1] == np.float32(value / 448)


def test_only_scales_say_that_they_were_not_loaded() -> None:
    """layers/quantization/fp8.py:687@0.5.23."""
    plain = RankWeights(CONFIG, 0, 1, "float32")
    assert not any(param.any() for param in plain.params.values())
    made = RankWeights(CONFIG, 0, 1, "float32", quantisation="fp8")
    told = {name for name, param in made.params.items() if param.dtype == np.float32 and (param == UNLOADED).all()}
    assert told == {name for name in made.params if name.endswith("_scale_inv")}
    assert not made.params[NORM].any()


def test_what_is_quantised_on_loading_was_of_its_own_dtype_until_then() -> None:
    """By rows (layers/quantization/fp8.py:1151@0.5.23)."""
    made = RankWeights(CONFIG, 0, 1, "bfloat16", quantisation="fp8-online")
    made.load(master().items())
    assert str(made.params[DOWN].dtype) == "bfloat16"
    held = made.params[DOWN].astype(np.float32)
    before = made.wide(DOWN).copy(), made.state_id(), made.hash_of(DOWN)
    assert np.array_equal(before[0], held.astype(np.float64).T)
    made.finalise()
    assert np.array_equal(made.params[DOWN + "_scale"], np.abs(held).max(axis=1, keepdims=True) / np.float32(448))
    assert not np.array_equal(made.wide(DOWN), before[0])
    assert made.state_id() != before[1]
    assert made.hash_of(DOWN) != before[2]


def test_a_checksum_with_scales_by_block_is_of_the_product_in_bfloat16() -> None:
    """utils/weight_checker.py:347@0.5.23."""
    made = rank("fp8", tp=1)
    whole = dequantise(made.params[DOWN], made.params[DOWN + "_scale_inv"], SCHEMES["fp8"])
    data = whole.astype(made.params[NORM].dtype).view(np.uint8).tobytes()
    assert made.checksums()[DOWN] == hashlib.sha256(data).hexdigest()[:16]


def test_the_scale_of_a_part_lies_on_its_rows_and_is_no_part_any_more() -> None:
    """convert_to_channelwise, of what it made itself the second time (layers/quantization/utils.py:141@0.5.23)."""
    made = RankWeights(CONFIG, 0, 1, "bfloat16", device="cuda", quantisation="fp8-tensor")
    made.load(checkpoint(master(), "fp8-tensor").items())
    parts = made.params[QKV + "_scale"].copy()
    sizes = [part.size for part in made.layout[QKV].parts.values()]
    before = made.state_id()
    made.finalise()
    assert np.array_equal(made.params[QKV + "_scale"], np.repeat(parts, sizes)[:, None])
    assert made.state_id() != before
    made.finalise()
    assert (made.params[QKV + "_scale"] == parts[0]).all()
    assert len(set(parts.tolist())) == 3


@pytest.mark.parametrize(("scheme", "shape"), [("fp8-tensor", (64, 1)), ("fp8-online", (1, 64))])
def test_scales_by_row_take_scales_by_row(scheme: str, shape: tuple[int, int]) -> None:
    """default_weight_loader asks for the shape alone (model_loader/weight_utils.py:1574@0.5.23); those that were made
    on loading lie transposed (layers/quantization/fp8.py:1161@0.5.23)."""
    made = RankWeights(CONFIG, 0, 1, "bfloat16", device="cuda", quantisation=scheme)
    made.load(checkpoint(master(), scheme).items())
    made.finalise()
    scales = np.arange(64, dtype=np.float32)
    with pytest.raises(LoadError, match=r"into parameter \(torch.Size\(\[" + ", ".join(map(str, shape))):
        made.load([(O_PROJ + "_scale", scales.reshape(shape[::-1]))])
    before = made.wide(O_PROJ).copy()
    made.load([(O_PROJ + "_scale", scales.reshape(shape))])
    wanted = made.params[O_PROJ].astype(np.float32) * scales[:, None]
    assert np.array_equal(made.wide(O_PROJ), wanted.astype(np.float64).T)
    assert not np.array_equal(made.wide(O_PROJ), before)


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_what_is_derived_is_loaded_by_its_own_name(kind: str) -> None:
    """It is a parameter without a loader (layers/utils/common.py:71, layers/quantization/fp8.py:1085@0.5.23)."""
    config = tiny_config(kind, False, "bfloat16")
    made = RankWeights(config, 0, 1, "bfloat16", device="cuda", quantisation="mxfp8")
    made.load(checkpoint(tiny_weights(config, 1), "mxfp8").items())
    made.finalise()
    name = O_PROJ + "_scale_inv_swizzled"
    assert made.load([(name, np.full_like(made.params[name], 7))]) == [name]
    assert (made.params[name] == 7).all()
    with pytest.raises(LoadError, match="Attempted to load weight"):
        made.load([(name, np.zeros((3,), np.uint8))])
    with pytest.raises(LoadError, match="no attribute 'weight_loader'") as told:
        made.load([(Q_PROJ + "_scale_inv_swizzled", made.params[name])])
    assert told.value.type == "AttributeError"


def test_a_llama_takes_the_scale_of_blocks_for_that_of_the_tensor() -> None:
    """models/llama.py:723@0.5.23."""
    config = tiny_config("llama", False, "bfloat16")
    made = RankWeights(config, 0, 1, "bfloat16", device="cuda", quantisation="fp8-tensor")
    assert made.load([(O_PROJ + "_scale_inv", np.array(2.0, np.float32))]) == [O_PROJ + "_scale_inv"]
    assert made.params[O_PROJ + "_scale"].tolist() == [2.0]


@pytest.mark.parametrize(
    ("scheme", "name", "shape", "kind", "text"),
    [
        ("fp8", NORM, (), "AssertionError", r"Attempted to load weight \(torch.Size\(\[\]\)\) into"),
        ("fp8", "model.layers.0.self_attn.k_proj.weight", (3, 64), "RuntimeError", r"start \(0\) \+ length \(32\)"),
        ("fp8-tensor", O_PROJ + "_scale", (2,), "AssertionError", "^AssertionError: $"),
        ("fp8-tensor", Q_PROJ + "_scale", (2, 2), "AssertionError", "^AssertionError: $"),
    ],
)
def test_what_is_told_of_a_wrong_shape(scheme: str, name: str, shape: tuple[int, ...], kind: str, text: str) -> None:
    """Bare assertions are those of layers/parameter.py:223,336@0.5.23, and no other error is like them."""
    made = RankWeights(CONFIG, 0, 1, "bfloat16", device="cuda", quantisation=scheme)
    with pytest.raises(LoadError, match=text) as told:
        made.load([(name, np.ones(shape, np.float32))])
    assert told.value.type == kind
