"""Where every HF tensor lives on a device: fused names, shapes and slices of one TP rank.

Tables only; `loading.py` copies. Source: sglang/srt/layers/linear.py:652,1075,1553 and
layers/vocab_parallel_embedding.py:166 @0.5.23 (the same in every profile since 0.5.12.post1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Shard = Literal["q", "k", "v", 0, 1]
Kind = Literal["plain", "fused", "row", "vocab"]
VOCAB_PADDING = 64


@dataclass(frozen=True)
class Part:
    """One logical matrix inside a fused parameter of one rank, in rows: it sits at `offset`, has `size` rows, and
    comes from row `source` of the full tensor. `full` is the number of rows of the full tensor."""

    offset: int
    size: int
    source: int
    full: int


@dataclass(frozen=True)
class Param:
    """One device parameter of one rank. `bare_assert`: its loader asserts shapes without a text (gate_up_proj).

    row: `source` is the first input column. vocab: rows [source, source + rows) of the `vocab` rows are real, the
    rest is padding.
    """

    shape: tuple[int, ...]
    kind: Kind = "plain"
    parts: Mapping[Shard, Part] = field(default_factory=dict)
    bare_assert: bool = False
    source: int = 0
    rows: int = 0
    vocab: int = 0


def head_dim_of(config: Mapping[str, Any]) -> int:
    """The size of one attention head."""
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def kv_heads_per_rank(config: Mapping[str, Any], tp_size: int) -> tuple[int, int]:
    """(KV heads on one rank, ranks that share one KV head)."""
    total = int(config["num_key_value_heads"])
    if tp_size >= total:
        return 1, tp_size // total
    return total // tp_size, 1


def check_partition(config: Mapping[str, Any], tp_size: int) -> None:
    """ValueError, one line, when the model cannot be cut into `tp_size` ranks."""
    heads, kv_heads = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
    if tp_size < 1 or heads % tp_size or int(config["intermediate_size"]) % tp_size:
        raise ValueError(f"tp_size {tp_size} does not divide {heads} heads and intermediate size")
    if kv_heads % tp_size and tp_size % kv_heads:
        raise ValueError(f"tp_size {tp_size} neither divides nor is divided by {kv_heads} KV heads")


def device_layout(config: Mapping[str, Any], tp_rank: int, tp_size: int) -> dict[str, Param]:
    """Device parameter names and layouts of one rank, in the order of the real model's named_parameters()."""
    check_partition(config, tp_size)
    hidden, inter, vocab = int(config["hidden_size"]), int(config["intermediate_size"]), int(config["vocab_size"])
    heads, dim, kind = int(config["num_attention_heads"]), head_dim_of(config), config["model_type"]
    qkv_bias = kind == "qwen2" or bool(config.get("attention_bias"))
    o_bias = kind != "qwen2" and bool(config.get("attention_bias"))

    qkv = _qkv_parts(config, tp_rank, tp_size)
    qkv_rows = sum(part.size for part in qkv.values())
    cut = inter // tp_size
    gate_up: dict[Shard, Part] = {
        0: Part(0, cut, tp_rank * cut, inter),
        1: Part(cut, cut, tp_rank * cut, inter),
    }
    q_cut = heads * dim // tp_size

    out: dict[str, Param] = {"model.embed_tokens.weight": _vocab(vocab, hidden, tp_rank, tp_size)}
    for layer in range(int(config["num_hidden_layers"])):
        prefix = f"model.layers.{layer}."
        if kind == "qwen3":
            out[f"{prefix}self_attn.q_norm.weight"] = Param((dim,))
            out[f"{prefix}self_attn.k_norm.weight"] = Param((dim,))
        out[f"{prefix}self_attn.qkv_proj.weight"] = Param((qkv_rows, hidden), "fused", qkv)
        if qkv_bias:
            out[f"{prefix}self_attn.qkv_proj.bias"] = Param((qkv_rows,), "fused", qkv)
        out[f"{prefix}self_attn.o_proj.weight"] = Param((hidden, q_cut), "row", source=tp_rank * q_cut)
        if o_bias:
            out[f"{prefix}self_attn.o_proj.bias"] = Param((hidden,), "row", source=-1)
        out[f"{prefix}mlp.gate_up_proj.weight"] = Param((2 * cut, hidden), "fused", gate_up, bare_assert=True)
        out[f"{prefix}mlp.down_proj.weight"] = Param((hidden, cut), "row", source=tp_rank * cut)
        out[f"{prefix}input_layernorm.weight"] = Param((hidden,))
        out[f"{prefix}post_attention_layernorm.weight"] = Param((hidden,))
    out["model.norm.weight"] = Param((hidden,))
    if not config.get("tie_word_embeddings"):
        out["lm_head.weight"] = _vocab(vocab, hidden, tp_rank, tp_size)
    return out


def _qkv_parts(config: Mapping[str, Any], tp_rank: int, tp_size: int) -> dict[Shard, Part]:
    heads, dim = int(config["num_attention_heads"]), head_dim_of(config)
    kv_heads, replicas = kv_heads_per_rank(config, tp_size)
    q, kv = heads // tp_size * dim, kv_heads * dim
    full_kv = int(config["num_key_value_heads"]) * dim
    kv_source = tp_rank // replicas * kv
    return {
        "q": Part(0, q, tp_rank * q, heads * dim),
        "k": Part(q, kv, kv_source, full_kv),
        "v": Part(q + kv, kv, kv_source, full_kv),
    }


def _vocab(vocab: int, hidden: int, tp_rank: int, tp_size: int) -> Param:
    padding = VOCAB_PADDING
    if -(-vocab // padding) * padding % tp_size:
        padding *= tp_size
    padded = -(-vocab // padding) * padding
    cut = padded // tp_size
    start = min(tp_rank * cut, vocab)
    rows = min((tp_rank + 1) * cut, vocab) - start
    return Param((cut, hidden), "vocab", source=start, rows=rows, vocab=vocab)
