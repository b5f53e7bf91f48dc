"""What the real engine answered, recorded once: greedy tokens with log-probabilities, and what every kind of tensor
did to the weights."""

from __future__ import annotations

import json
import lzma
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fakes.engine.model import Model
from fakes.engine.weights import RankWeights
from fakes.tiny import NUMPY_DTYPES, tiny_config, tiny_weights

HERE = Path(__file__).parent


@lru_cache
def runs(name: str) -> list[dict[str, Any]]:
    return json.loads(lzma.decompress((HERE / name).read_bytes()))


def run_id(run: dict[str, Any]) -> str:
    return f"{run['shape']}{'-tied' if run['tied'] else ''}-{run['dtype']}-tp{run['tp']}"


def ranks_of(run: dict[str, Any]) -> list[RankWeights]:
    config = tiny_config(run["shape"], run["tied"])
    ranks = [RankWeights(config, rank, run["tp"], run["dtype"]) for rank in range(run["tp"])]
    for rank in ranks:
        rank.load(tiny_weights(config, run["seed"]).items())
    return ranks


def model_of(run: dict[str, Any]) -> Model:
    return Model(tiny_config(run["shape"], run["tied"]), ranks_of(run))


def tensors_of(case: dict[str, Any], index: int) -> list[tuple[str, np.ndarray]]:
    """The tensors of a recorded load case: made again from the same seed."""
    out = []
    for position, (name, shape, dtype) in enumerate(case["tensors"]):
        values = np.array(
            np.random.default_rng([index, position]).standard_normal(shape, dtype=np.float32) * np.float32(0.2)
        )
        if dtype in ("int32", "uint8"):
            values = np.abs(values * 50)
        out.append((name, values.astype(NUMPY_DTYPES[dtype])))
    return out
