"""The model against the textbook: Llama, Qwen2 and Qwen3 in float64, unsharded, without a cache, as HF writes them
(transformers models/llama/modeling_llama.py: RMSNorm, rotate_half, repeat_kv, SwiGLU)."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.model import Model, TokenKV, log_softmax
from fakes.engine.weights import RankWeights
from fakes.tiny import NUMPY_DTYPES, tiny_config, tiny_weights

PROMPT = [5, 9, 17, 33, 101, 7, 300, 44, 0, 511]
CONFIGS = {
    "llama": tiny_config("llama", False, "float32"),
    "llama tied": tiny_config("llama", True, "float32"),
    "qwen2": tiny_config("qwen2", False, "float32"),
    "qwen3": tiny_config("qwen3", False, "float32"),
    "biased": tiny_config("llama", False, "float32", attention_bias=True),
    "large eps": tiny_config("qwen3", False, "float32", rms_norm_eps=0.5),
    "theta": tiny_config("llama", False, "float32", rope_theta=17.0),
    "rope_parameters": tiny_config("llama", False, "float32", rope_parameters={"rope_theta": 17.0}, rope_theta=3.0),
    "rope_parameters without theta": tiny_config("llama", False, "float32", rope_parameters={}, rope_theta=17.0),
    "wide heads": tiny_config("qwen3", False, "float32", head_dim=32),
    "every head its own": tiny_config("llama", False, "float32", num_key_value_heads=4),
    "three layers": tiny_config("llama", False, "float32", num_hidden_layers=3),
    "odd vocabulary": tiny_config("llama", False, "float32", vocab_size=550),
}


def theta(config):
    found = config.get("rope_parameters")
    return found.get("rope_theta", 10000.0) if found is not None else config.get("rope_theta", 10000.0)


def textbook(config, w, tokens):
    """(logits [T, vocab], keys and values [T, layers, 2, kv heads, dim])"""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim, count = config["head_dim"], len(tokens)
    w = {name: value.astype(np.float64) for name, value in w.items()}

    def linear(x, name):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    def norm(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name + ".weight"]

    def rotate(x):
        angle = np.arange(count)[:, None] * theta(config) ** (-np.arange(0, dim, 2) / dim)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., : dim // 2], x[..., dim // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    x, kept = w["model.embed_tokens.weight"][list(tokens)], []
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        h = norm(x, p + "input_layernorm")
        q = linear(h, p + "self_attn.q_proj").reshape(count, heads, dim)
        k = linear(h, p + "self_attn.k_proj").reshape(count, kv_heads, dim)
        v = linear(h, p + "self_attn.v_proj").reshape(count, kv_heads, dim)
        if config["model_type"] == "qwen3":
            q, k = norm(q, p + "self_attn.q_norm"), norm(k, p + "self_attn.k_norm")
        q, k = rotate(q), rotate(k)
        kept.append([k, v])
        out = np.zeros((count, heads, dim))
        for head in range(heads):
            own = head * kv_heads // heads
            for t in range(count):
                scores = k[: t + 1, own] @ q[t, head] / np.sqrt(dim)
                weights = np.exp(scores - scores.max())
                out[t, head] = weights / weights.sum() @ v[: t + 1, own]
        x = x + linear(out.reshape(count, -1), p + "self_attn.o_proj")
        h = norm(x, p + "post_attention_layernorm")
        gate = linear(h, p + "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
    head = w["model.embed_tokens.weight"] if config["tie_word_embeddings"] else w["lm_head.weight"]
    return norm(x, "model.norm") @ head.T, np.array(kept).transpose(2, 0, 1, 3, 4)


def model_of(config, tp=1, dtype="float32", seed=0):
    ranks = [RankWeights(config, rank, tp, dtype) for rank in range(tp)]
    for rank in ranks:
        rank.load(tiny_weights(config, seed).items())
    return Model(config, ranks)


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_logits_and_kv_are_those_of_the_textbook(config, tp):
    model = model_of(config, tp)
    logits, kv = textbook(config, tiny_weights(config, 0), PROMPT)
    found, new = model.forward(PROMPT)
    assert (found.dtype, new.dtype) == (np.float32, np.float64)
    assert np.abs(found - logits).max() < 2e-4
    assert new.shape == (len(PROMPT), *model.kv_shape)
    kv_heads = config["num_key_value_heads"]
    for rank in range(tp):
        own = new[:, rank]
        first = rank * kv_heads // tp
        assert np.abs(own - kv[:, :, :, first : first + own.shape[3]]).max() < 2e-4
    for cut in (1, 4, len(PROMPT) - 1):
        rest, more = model.forward(PROMPT[cut:], new[:cut], last_only=True)
        assert rest.shape == (1, config["vocab_size"])
        assert (rest[0] == found[-1]).all()
        assert (more == new[cut:]).all()


def test_the_default_theta_is_ten_thousand():
    config = dict(CONFIGS["llama"])
    del config["rope_theta"]
    logits, _ = textbook(config, tiny_weights(config, 0), PROMPT)
    found = model_of(config).forward(PROMPT)[0]
    assert np.abs(found - logits).max() < 2e-4
    assert (found == model_of({**config, "rope_theta": 10000}).forward(PROMPT)[0]).all()
    config["rope_parameters"] = {"rope_type": "default"}
    assert (found == model_of(config).forward(PROMPT)[0]).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "biased"])
def test_every_result_is_a_number_of_the_models_dtype(name, dtype):
    """The KV and the logits are rounded where the real kernels round, so a prefix from the cache changes nothing."""
    config = tiny_config(CONFIGS[name]["model_type"], False, dtype, attention_bias=CONFIGS[name]["attention_bias"])
    for tp in (1, 2):
        logits, kv = model_of(config, tp, dtype).forward(PROMPT)
        for value in (logits, kv):
            assert (value == value.astype(NUMPY_DTYPES[dtype]).astype(np.float64)).all()
    rounded = model_of(config, 1, dtype).forward(PROMPT)[0]
    exact, _ = textbook(config, tiny_weights(config, 0), PROMPT)
    error = np.abs(rounded - exact).max()
    assert error < 2e-4 if dtype == "float32" else 1e-3 < error < 0.2


def test_greedy_generation_is_the_textbooks_argmax():
    config = CONFIGS["llama"]
    tokens = list(PROMPT)
    for _ in range(5):
        tokens.append(int(textbook(config, tiny_weights(config, 0), tokens)[0][-1].argmax()))
    assert model_of(config).generate(PROMPT, 5) == tokens[len(PROMPT) :]
    assert model_of(config).generate(PROMPT, 0) == []


def test_the_last_token_id_of_the_vocabulary_is_in_it_and_the_next_is_not():
    model = model_of(CONFIGS["odd vocabulary"], 2)
    model.forward([0, 549])
    for outside in ([550], [3, 550], [-1], [3, -1]):
        with pytest.raises(IndexError, match=r"^token id outside the vocabulary$"):
            model.forward(outside)


def test_large_activations_do_not_warn():
    config = CONFIGS["llama"]
    model = model_of(config)
    model.ranks[0].fill("model.layers.0.mlp.gate_up_proj.weight", -1e4)
    with np.errstate(over="raise"):
        before = np.geterr()
        assert np.isfinite(model.forward(PROMPT)[0]).all()
        assert np.geterr() == before


def test_large_scores_do_not_overflow():
    model = model_of(CONFIGS["qwen3"])
    for part in "qk":
        model.ranks[0].fill(f"model.layers.0.self_attn.{part}_norm.weight", 100.0)
    with np.errstate(over="raise", invalid="raise"):
        assert np.isfinite(model.forward(PROMPT)[0]).all()


def test_kv_grows_and_leaves_what_it_was_made_of_alone():
    start = np.arange(6.0).reshape(3, 2)
    kv, made = TokenKV(start), [start.copy()]
    assert (len(kv), kv.array.tolist()) == (3, start.tolist())
    for n in range(1, 60):
        more = np.full((n % 3 + 1, 2), float(n))
        kv.append(more)
        made.append(more)
        assert kv.array.tolist() == np.concatenate(made).tolist()
        assert len(kv) == sum(map(len, made))
    assert start.tolist() == [[0, 1], [2, 3], [4, 5]]
    empty = model_of(CONFIGS["llama"], 2).empty_kv()
    assert empty.array.shape == (0, 2, 2, 2, 1, 16)


def test_growing_rarely_copies():
    kv, buffers = TokenKV(np.zeros((0, 1))), [None]
    for _ in range(1000):
        kv.append(np.ones((1, 1)))
        if kv.array.base is not buffers[-1]:
            buffers.append(kv.array.base)
    assert len(buffers) < 12


def test_log_softmax():
    logits = np.array([[1.0, 2.0, 3.0], [1000.0, 1000.0, -1000.0]], np.float32)
    found = log_softmax(logits)
    assert found.dtype == np.float32
    assert np.allclose(np.exp(found).sum(-1), 1)
    assert np.allclose(found[0], [-2.4076059, -1.4076059, -0.4076059])
    assert np.allclose(found[1], [-np.log(2), -np.log(2), -2000 - np.log(2)])
