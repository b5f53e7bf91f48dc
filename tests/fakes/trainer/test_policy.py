from __future__ import annotations

import numpy as np
import pytest

from fakes.tiny import SHAPES, tiny_config, tiny_weights
from fakes.trainer.policy import cut_dim, merge, shard


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("layout", ["fsdp", "megatron"])
@pytest.mark.parametrize("shape", SHAPES)
def test_shards_make_up_the_tensor_again(shape, layout, ranks):
    for name, tensor in tiny_weights(tiny_config(shape), 0).items():
        parts = [shard(name, tensor, rank, ranks, layout) for rank in range(ranks)]
        assert (merge(name, parts, tensor.shape, layout) == tensor).all()


def test_fsdp_cuts_the_first_dimension_and_leaves_the_last_ranks_short():
    tensor = np.arange(5)
    assert [shard("w", tensor, rank, 4).tolist() for rank in range(4)] == [[0, 1], [2, 3], [4], []]


def test_megatron_cuts_columns_rows_and_vocabulary_and_keeps_norms_whole():
    def dim(name, *shape):
        return cut_dim(f"model.layers.0.{name}", shape, 2, "megatron")

    assert dim("self_attn.q_proj.weight", 64, 64) == 0
    assert dim("self_attn.q_proj.bias", 64) == 0
    assert dim("self_attn.o_proj.weight", 64, 64) == 1
    assert dim("mlp.down_proj.weight", 64, 128) == 1
    assert dim("input_layernorm.weight", 64) is None
    assert cut_dim("model.embed_tokens.weight", (512, 64), 2, "megatron") == 0
    assert dim("mlp.up_proj.weight", 63, 64) is None


def test_shards_of_something_else_are_refused():
    with pytest.raises(ValueError, match=r"w: the shards make \(3,\), not \(4,\)"):
        merge("w", [np.zeros(2), np.zeros(1)], (4,))
