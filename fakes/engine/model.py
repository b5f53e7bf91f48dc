"""Llama, Qwen2 and Qwen3 over the TP shards of `RankWeights`: the tokens of the real engine for the same folder.

Arrays are float64 that hold values of the model's dtype: every operation is computed wide and rounded where the real
one rounds. So a result does not depend on how a prompt was cut into prefix and extension, as it would with float32
sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from fakes.engine.layout import head_dim_of, kv_heads_per_rank
from fakes.engine.weights import RankWeights

if TYPE_CHECKING:
    from fakes.engine.lora_adapter import Sharded

Round = Callable[[np.ndarray], np.ndarray]


_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def _to_bfloat16(x: np.ndarray) -> np.ndarray:
    """By way of float32, as ml_dtypes casts: an accumulator of float32 rounded to bfloat16."""
    return x.astype(_BFLOAT16).astype(np.float64)


def _to_float32(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float64)


class TokenKV:
    """KV of one sequence, token-major, growing in place: float64 [tokens, ranks, layers, 2, kv_heads, head_dim]."""

    def __init__(self, kv: np.ndarray) -> None:
        self._data = kv
        self._length = len(kv)

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> np.ndarray:
        """A view of what is there; do not write to it."""
        return self._data[: self._length]

    def append(self, new: np.ndarray) -> None:
        """Add the KV of further tokens."""
        need = self._length + len(new)
        if need > len(self._data):  # true at first: what it was made of stays as it is
            grown = np.empty((max(need, 2 * self._length, 32), *self._data.shape[1:]), dtype=self._data.dtype)
            grown[: self._length] = self.array
            self._data = grown
        self._data[self._length : need] = new
        self._length = need


class Model:
    """One model over all its ranks. It reads the ranks' parameters at every call, so a torn model computes torn tokens.

    model_config: config.json. ranks: one RankWeights per TP rank, in order.
    """

    def __init__(self, model_config: Mapping[str, Any], ranks: Sequence[RankWeights]) -> None:
        self.ranks = list(ranks)
        self.vocab_size = int(model_config["vocab_size"])
        self.layers = int(model_config["num_hidden_layers"])
        self.head_dim = head_dim_of(model_config)
        self._heads = int(model_config["num_attention_heads"]) // len(self.ranks)
        self._kv_heads, _ = kv_heads_per_rank(model_config, len(self.ranks))
        self._eps = float(model_config["rms_norm_eps"])
        self._qk_norm = model_config["model_type"] == "qwen3"
        self._tied = bool(model_config.get("tie_word_embeddings"))
        self._round: Round = _to_float32 if self.ranks[0].dtype == np.float32 else _to_bfloat16
        self._adapter: Sequence[Sharded] | None = None
        self._cos, self._sin = self._rope_tables(model_config)

    @property
    def kv_shape(self) -> tuple[int, ...]:
        """The shape of one token's KV: (ranks, layers, 2, kv_heads, head_dim)."""
        return (len(self.ranks), self.layers, 2, self._kv_heads, self.head_dim)

    def empty_kv(self) -> TokenKV:
        """The KV of no tokens."""
        return TokenKV(np.empty((0, *self.kv_shape)))

    def forward(
        self,
        token_ids: Sequence[int],
        past_kv: np.ndarray | TokenKV | None = None,
        *,
        last_only: bool = False,
        adapter: Sequence[Sharded] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Logits and new KV of `token_ids` after `past_kv`, with each rank's share of a LoRA adapter if one is given.

        Returns (float32 [T, vocab], or [1, vocab] with `last_only`; float64 [T, *kv_shape], of the new tokens only).
        IndexError for a token outside the vocabulary.
        """
        self._adapter = adapter
        past = past_kv.array if isinstance(past_kv, TokenKV) else past_kv
        start = 0 if past is None else len(past)
        ids = np.asarray(token_ids, dtype=np.int64)
        positions = np.arange(start, start + len(ids))
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        new_kv = np.empty((len(ids), *self.kv_shape))
        hidden, residual = self._embed(ids), None
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            normed, residual = self._norm(hidden, residual, prefix + "input_layernorm.weight")
            hidden = self._attention(layer, prefix + "self_attn.", normed, cos, sin, past, new_kv)
            normed, residual = self._norm(hidden, residual, prefix + "post_attention_layernorm.weight")
            hidden = self._mlp(prefix + "mlp.", normed)
        if last_only:
            hidden, residual = hidden[-1:], None if residual is None else residual[-1:]
        normed, _ = self._norm(hidden, residual, "model.norm.weight")
        return self._head(normed), new_kv

    def generate(self, prompt: Sequence[int], n: int) -> list[int]:
        """Greedy tokens from a clean cache."""
        kv = self.empty_kv()
        feed, out = list(prompt), []
        for _ in range(n):
            logits, new = self.forward(feed, kv, last_only=True)
            kv.append(new)
            out.append(int(logits[-1].argmax()))
            feed = out[-1:]
        return out

    def _rope_tables(self, config: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """cos, and sin with its first half negated, [positions, head_dim] in the model's dtype
        (rotary_embedding/base.py:253, utils.py:50
        @0.5.23)."""
        half = np.arange(0, self.head_dim, 2, dtype=np.float32) / np.float32(self.head_dim)
        inverse = np.float32(1) / np.power(np.float32(_rope_theta(config)), half)
        angles = np.arange(int(config["max_position_embeddings"]), dtype=np.float32)[:, None] * inverse[None]
        cos, sin = self._round(np.cos(angles)), self._round(np.sin(angles))
        return np.concatenate([cos, cos], axis=1), np.concatenate([-sin, sin], axis=1)

    def _embed(self, ids: np.ndarray) -> np.ndarray:
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            raise IndexError("token id outside the vocabulary")
        table = [rank.wide("model.embed_tokens.weight") for rank in self.ranks]
        if len(table) == 1:
            return np.ascontiguousarray(table[0][:, ids].T)
        cut = table[0].shape[1]
        out = np.empty((len(ids), table[0].shape[0]))
        for row, token in enumerate(ids):
            out[row] = table[token // cut][:, token % cut]
        return out

    def _norm(self, hidden: np.ndarray, residual: np.ndarray | None, name: str) -> tuple[list[np.ndarray], np.ndarray]:
        """(RMSNorm on every rank, residual): the residual is added first, the variance sees the sum before it is
        rounded
        (layernorm.py:828 @0.5.23). Every rank has its own copy of the weight, so a torn model norms differently by
        rank.
        """
        if residual is None:
            total, residual = hidden, hidden
        else:
            total = _to_float32(hidden + residual)
            residual = self._round(total)
        unit = self._unit(total)
        return [self._round(unit * rank.wide(name)) for rank in self.ranks], residual

    def _unit(self, x: np.ndarray) -> np.ndarray:
        scaled: np.ndarray = x / np.sqrt(np.add.reduce(x * x, -1, keepdims=True) / x.shape[-1] + self._eps)
        return scaled

    def _linear(self, rank: RankWeights, name: str, x: np.ndarray) -> np.ndarray:
        y = x @ rank.wide(name + ".weight")
        if name + ".bias" in rank.params:
            y = y + rank.wide(name + ".bias")
        return self._with_adapter(rank, name, x, self._round(y))

    def _with_adapter(self, rank: RankWeights, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """W x + alpha / r B A x: A's product is rounded after it was scaled, then B's is added to the rounded output
        (lora/torch_ops/lora_ops.py:45,89@0.5.23)."""
        if self._adapter is None:
            return y
        mine = self._adapter[rank.tp_rank]
        for start, end, a, b in mine.slices.get(name, ()):
            y[:, start:end] = self._round(y[:, start:end] + self._round(mine.scaling * (x @ a)) @ b)
        return y

    def _all_reduce(self, parts: list[np.ndarray]) -> np.ndarray:
        return parts[0] if len(parts) == 1 else self._round(np.add.reduce(parts))

    def _attention(
        self,
        layer: int,
        prefix: str,
        normed: Sequence[np.ndarray],
        cos: np.ndarray,
        sin: np.ndarray,
        past: np.ndarray | None,
        new_kv: np.ndarray,
    ) -> np.ndarray:
        outputs = []
        heads, kv_heads, dim = self._heads, self._kv_heads, self.head_dim
        for index, (rank, x) in enumerate(zip(self.ranks, normed, strict=True)):
            qkv = self._linear(rank, prefix + "qkv_proj", x).reshape(len(x), heads + 2 * kv_heads, dim)
            q_and_k = qkv[:, : heads + kv_heads]
            if self._qk_norm:
                q, k = q_and_k[:, :heads], q_and_k[:, heads:]
                q = self._round(self._unit(q) * rank.wide(prefix + "q_norm.weight"))
                k = self._round(self._unit(k) * rank.wide(prefix + "k_norm.weight"))
                q_and_k = np.concatenate([q, k], axis=1)
            q_and_k = self._rope(q_and_k, cos, sin)
            q = q_and_k[:, :heads]
            new_kv[:, index, layer, 0] = q_and_k[:, heads:]
            new_kv[:, index, layer, 1] = qkv[:, heads + kv_heads :]
            fresh = new_kv[:, index, layer]
            both = fresh if past is None else np.concatenate([past[:, index, layer], fresh])
            out = self._attend(q, both[:, 0], both[:, 1])
            outputs.append(self._row_parallel(rank, index, prefix + "o_proj", out))
        return self._all_reduce(outputs)

    def _row_parallel(self, rank: RankWeights, index: int, name: str, x: np.ndarray) -> np.ndarray:
        """Only rank 0 adds a bias (linear.py:1758 @0.5.23)."""
        if index == 0:
            return self._linear(rank, name, x)
        return self._with_adapter(rank, name, x, self._round(x @ rank.wide(name + ".weight")))

    def _rope(self, x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        """Neox rotation of [T, heads, head_dim], every product rounded (rotary_embedding/utils.py:36 @0.5.23)."""
        half, r = self.head_dim // 2, self._round
        swapped = np.concatenate([x[..., half:], x[..., :half]], axis=-1)
        return r(r(x * cos) + r(swapped * sin))

    def _attend(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Causal attention of T queries over S >= T keys; query heads share KV heads in order. Returns [T, heads *
        head_dim]."""
        tokens, keys = len(q), len(k)
        group = self._heads // self._kv_heads
        grouped = q.reshape(tokens, self._kv_heads, group, self.head_dim).transpose(1, 2, 0, 3)
        scores = grouped @ k.transpose(1, 2, 0)[:, None] / np.sqrt(self.head_dim)
        if tokens > 1:
            hidden = np.arange(keys)[None, :] > np.arange(keys - tokens, keys)[:, None]
            scores = np.where(hidden, -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = self._round(weights) @ v.transpose(1, 0, 2)[:, None] / weights.sum(-1, keepdims=True)
        return self._round(mixed.transpose(2, 0, 1, 3).reshape(tokens, -1))

    def _mlp(self, prefix: str, normed: Sequence[np.ndarray]) -> np.ndarray:
        outputs = []
        for index, (rank, x) in enumerate(zip(self.ranks, normed, strict=True)):
            gate_up = self._linear(rank, prefix + "gate_up_proj", x)
            half = gate_up.shape[1] // 2
            gate, up = gate_up[:, :half], gate_up[:, half:]
            with np.errstate(over="ignore"):
                act = self._round(self._round(gate / (1 + np.exp(-gate))) * up)
            outputs.append(self._row_parallel(rank, index, prefix + "down_proj", act))
        return self._all_reduce(outputs)

    def _head(self, normed: Sequence[np.ndarray]) -> np.ndarray:
        name = "model.embed_tokens.weight" if self._tied else "lm_head.weight"
        parts = [self._round(x @ rank.wide(name)) for rank, x in zip(self.ranks, normed, strict=True)]
        logits = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        out: np.ndarray = logits[:, : self.vocab_size].astype(np.float32)
        return out


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """float32 log-probabilities over the last axis, as the sampler reports them."""
    wide = logits.astype(np.float64)
    wide = wide - wide.max(-1, keepdims=True)
    out: np.ndarray = (wide - np.log(np.exp(wide).sum(-1, keepdims=True))).astype(np.float32)
    return out


def _rope_theta(config: Mapping[str, Any]) -> float:
    parameters = config.get("rope_parameters")
    if isinstance(parameters, Mapping):
        return float(parameters.get("rope_theta", 10000.0))
    return float(config.get("rope_theta", 10000.0))
