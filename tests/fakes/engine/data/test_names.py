"""Which device parameter an HF name belongs to, and which names SGLang skips or dies of, by model kind."""

from __future__ import annotations

import pytest

from fakes.engine.layout import device_layout
from fakes.engine.loading import LoadError, not_a_name, route
from fakes.tiny import tiny_config

A, M = "model.layers.1.self_attn.", "model.layers.1.mlp."
PARAMS = {kind: device_layout(tiny_config(kind), 0, 1) for kind in ("llama", "qwen2", "qwen3")}


def where(name, kind):
    try:
        return route(name, kind=kind, layers=2, params=PARAMS[kind])
    except LoadError as error:
        return error.type, error.message


@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize(
    ("name", "device", "shard"),
    [
        (A + "q_proj.weight", A + "qkv_proj.weight", "q"),
        (A + "k_proj.weight", A + "qkv_proj.weight", "k"),
        (A + "v_proj.weight", A + "qkv_proj.weight", "v"),
        (M + "gate_proj.weight", M + "gate_up_proj.weight", 0),
        (M + "up_proj.weight", M + "gate_up_proj.weight", 1),
        (A + "o_proj.weight", A + "o_proj.weight", None),
        (M + "down_proj.weight", M + "down_proj.weight", None),
        ("model.embed_tokens.weight", "model.embed_tokens.weight", None),
        ("model.norm.weight", "model.norm.weight", None),
        ("lm_head.weight", "lm_head.weight", None),
    ],
)
def test_names_of_a_checkpoint(kind, name, device, shard):
    assert where(name, kind) == (device, shard)


@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize(
    "name",
    [
        "",
        "nope",
        "model.layers.2.self_attn.q_proj.weight",
        "model.layers.2.mlp.down_proj.weight",
        "model.layers.17.self_attn.q_proj.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.cos_cached",
        "model.vision_tower.blocks.q_proj.weight",
        "model.multi_modal_projector.up_proj.weight",
        A + "q_proj.kv_scale",
        A + "k_proj.k_scale",
        A + "v_proj.v_scale",
        A + "o_proj.bias",
        M + "up_proj.bias",
        A + "q_proj.bias.extra",
    ],
)
def test_names_that_are_skipped(kind, name):
    if kind == "qwen3" and name.endswith("extra"):
        assert where(name, kind) == ("KeyError", repr(A + "qkv_proj.bias.extra"))
    else:
        assert where(name, kind) is None


def test_qwen3_dies_of_a_stacked_name_that_it_does_not_have():
    """qwen3.py:744 @0.5.23 looks the name up without asking; Llama and Qwen2 ask first."""
    for kind, wanted in (("qwen3", ("KeyError", repr(A + "qkv_proj.scale"))), ("llama", None), ("qwen2", None)):
        assert where(A + "q_proj.scale", kind) == wanted


@pytest.mark.parametrize("name", ["layers.1.mlp.down_proj.weight", "embed_tokens.weight", "norm.weight"])
def test_only_qwen3_knows_names_without_their_model(name):
    assert where(name, "qwen3") == ("model." + name, None)
    assert where(name, "llama") is None
    assert where(name, "qwen2") is None


def test_a_fused_name_is_its_own_for_llama_and_mangled_by_the_others():
    """llama.py:706 matches `.q_proj`, qwen2.py:652 and qwen3.py:689 `q_proj`, which qkv_proj holds no less."""
    name = A + "qkv_proj.weight"
    assert where(name, "llama") == (name, None)
    assert where(name, "qwen2") is None
    assert where(name, "qwen3") == ("KeyError", repr(A + "qkqkv_proj.weight"))
    name = M + "gate_up_proj.weight"
    assert where(name, "llama") == (name, None)
    assert where(name, "qwen2") is None
    assert where(name, "qwen3") == ("KeyError", repr(M + "gate_gate_up_proj.weight"))


def test_qwen2_has_biases():
    assert where(A + "k_proj.bias", "qwen2") == (A + "qkv_proj.bias", "k")


@pytest.mark.parametrize("name", [None, 1, b"x"])
def test_a_name_that_is_no_text_ends_in_the_first_thing_done_with_it(name):
    kind = type(name).__name__
    wanted = {
        "llama": ("AttributeError", f"'{kind}' object has no attribute 'endswith'"),
        "qwen2": ("TypeError", f"expected string or bytes-like object, got '{kind}'"),
        "qwen3": ("AttributeError", f"'{kind}' object has no attribute 'startswith'"),
    }
    for model, (type_, message) in wanted.items():
        error = not_a_name(name, model)
        assert (error.type, error.message, str(error)) == (type_, message, f"{type_}: {message}")
