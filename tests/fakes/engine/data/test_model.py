from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.model import Model, TokenKV, log_softmax
from fakes.engine.weights import RankWeights
from fakes.tiny import SHAPES, hf_shapes, tiny_config, tiny_weights

PROMPT = [5, 9, 17, 33, 101, 7, 300, 44]


def model_of(shape="llama", tied=False, dtype="bfloat16", tp=1, seed=0, **overrides):
    config = tiny_config(shape, tied, **overrides)
    ranks = [RankWeights(config, rank, tp, dtype) for rank in range(tp)]
    for rank in ranks:
        rank.load(tiny_weights(config, seed).items())
    return Model(config, ranks)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_cached_prefix_changes_nothing(shape, dtype):
    model = model_of(shape, dtype=dtype)
    whole, kv = model.forward(PROMPT)
    for cut in range(1, len(PROMPT)):
        rest, new = model.forward(PROMPT[cut:], kv[:cut])
        assert (rest == whole[cut:]).all()
        assert (new == kv[cut:]).all()


def test_last_only_is_the_last_row():
    model = model_of()
    assert (model.forward(PROMPT, last_only=True)[0] == model.forward(PROMPT)[0][-1:]).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_ranks_do_not_change_the_tokens_at_float32(shape):
    one = model_of(shape, dtype="float32").generate(PROMPT, 8)
    assert model_of(shape, dtype="float32", tp=2).generate(PROMPT, 8) == one
    assert model_of(shape, dtype="float32", tp=4).generate(PROMPT, 8) == one


def test_ranks_of_different_updates_give_other_tokens():
    torn = model_of(tp=2)
    torn.ranks[1].load(tiny_weights(tiny_config(), 1).items())
    assert torn.generate(PROMPT, 8) not in (
        model_of(tp=2).generate(PROMPT, 8),
        model_of(tp=2, seed=1).generate(PROMPT, 8),
    )


@pytest.mark.parametrize(
    "name", ["input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"]
)
def test_every_rank_norms_with_its_own_weights(name):
    torn = model_of("qwen3", tp=2)
    clean, _ = torn.forward(PROMPT)
    full = f"model.layers.0.{name}.weight"
    torn.ranks[1].load([(full, tiny_weights(tiny_config("qwen3"), 1)[full])])
    assert not (torn.forward(PROMPT)[0] == clean).all()


def test_the_last_norm_of_a_rank_touches_its_part_of_the_vocabulary_alone():
    torn = model_of(tp=2)
    clean, _ = torn.forward(PROMPT)
    torn.ranks[1].load([("model.norm.weight", tiny_weights(tiny_config(), 1)["model.norm.weight"])])
    logits, _ = torn.forward(PROMPT)
    assert (logits[:, :256] == clean[:, :256]).all()
    assert not (logits[:, 256:] == clean[:, 256:]).all()


def test_kv_of_former_weights_gives_other_tokens():
    model = model_of()
    _, stale = model.forward(PROMPT[:-1])
    model.ranks[0].load(tiny_weights(tiny_config(), 1).items())
    mixed, _ = model.forward(PROMPT[-1:], stale)
    clean, _ = model.forward(PROMPT)
    assert int(mixed[-1].argmax()) != int(clean[-1].argmax())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_tensor_left_out_shows_in_the_tokens(shape, tied):
    config = tiny_config(shape, tied)
    new, old = tiny_weights(config, 1), tiny_weights(config, 0)
    model = model_of(shape, tied, seed=1)
    prompts = [PROMPT, PROMPT[::-1], [411, 12, 88]]
    clean = [model.generate(prompt, 8) for prompt in prompts]
    for name in hf_shapes(config):
        model.ranks[0].load([(name, old[name])])
        assert [model.generate(prompt, 8) for prompt in prompts] != clean, name
        model.ranks[0].load([(name, new[name])])


def test_zeroed_weights_answer_token_0():
    model = model_of()
    model.ranks[0].zero()
    assert model.generate(PROMPT, 4) == [0, 0, 0, 0]


def test_a_padded_vocabulary_never_answers_padding():
    model = model_of(vocab_size=500, tp=2)
    logits, _ = model.forward(PROMPT)
    assert logits.shape == (len(PROMPT), 500)


@pytest.mark.parametrize("token", [-1, 512])
def test_a_token_outside_the_vocabulary_is_an_index_error(token):
    with pytest.raises(IndexError):
        model_of().forward([token])


def test_token_kv_grows_without_losing_anything():
    model = model_of()
    _, kv = model.forward(PROMPT * 10)
    grown = model.empty_kv()
    for row in range(len(kv)):
        grown.append(kv[row : row + 1])
        assert (grown.array == kv[: row + 1]).all()
    assert len(grown) == len(kv)


def test_token_kv_does_not_write_into_what_it_was_made_of():
    shared = np.zeros((4, 1, 2, 2, 2, 16))
    kv = TokenKV(shared[:2])
    kv.append(np.ones((1, 1, 2, 2, 2, 16)))
    assert not shared.any()


def test_log_softmax_sums_to_one():
    logits = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    np.testing.assert_allclose(np.exp(log_softmax(logits)).sum(-1), 1, rtol=1e-5)
