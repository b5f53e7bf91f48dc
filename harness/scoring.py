"""What the trainer thinks of an answer: log-probabilities of given tokens under the policy's weights, in float32.

The trainer's model is the numpy one of the fakes, unsharded, whatever lane the engine is of; of an engine with
quantised layers it has the dequantised weights, as a trainer that quantises for its forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from harness.lanes.base import EngineSpec


def trainer_logprobs(spec: EngineSpec, seed: int, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[float, ...]:
    """One number (nat) per token: how likely the policy with the weights of `seed` was to say it there."""
    from fakes.engine.model import log_softmax

    if not tokens:
        return ()
    model = _policy(spec.shape, spec.tied, spec.dtype, seed, str(dict(spec.options).get("quantisation") or ""))
    logits, _ = model.forward([*prompt, *tokens[:-1]], model.empty_kv())
    first = len(prompt) - 1
    return tuple(float(log_softmax(logits[first + at])[token]) for at, token in enumerate(tokens))


def mult_prob_error(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """token_mult_prob_error: the mean of exp |difference of log-probabilities| over the tokens of an answer; 1 is
    agreement. ValueError for lists of different lengths or of nothing."""
    import math

    if not ours or len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} log-probabilities have no mean difference")
    return sum(math.exp(abs(a - b)) for a, b in zip(ours, theirs, strict=True)) / len(ours)


@lru_cache(maxsize=16)
def _policy(shape: str, tied: bool, dtype: str, seed: int, held: str) -> Any:
    from fakes.engine.model import Model
    from fakes.engine.quantised import checkpoint
    from fakes.engine.weights import RankWeights
    from fakes.tiny import tiny_config, tiny_weights

    weights: Mapping[str, np.ndarray] = tiny_weights(tiny_config(shape, tied, dtype), seed)
    config = tiny_config(shape, tied, "float32")
    rank = RankWeights(config, 0, 1, "float32", quantisation=held)
    rank.load(checkpoint(weights, held).items())
    rank.finalise()
    return Model(config, [rank])
