"""Every kind of tensor, fitting or not, sent to the real engine and to the fake: same parameters, same words
(validated: 0.5.23, cpu, over update_weights_from_distributed, which answers what the tensor path dies of)."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.loading import LoadError
from fakes.engine.weights import RankWeights
from fakes.tiny import tiny_config
from tests.fakes.engine.data.recorded import ranks_of, run_id, runs, tensors_of

RUNS = runs("loads.json.xz")
SUCCESS = "Succeeded to update parameter online."
PARTIAL = (
    "Failed to update parameter online: {}. The full weights of the ModelRunner are partially updated. "
    "Please discard the whole weights."
)


def load(rank, tensors):
    try:
        rank.load(tensors)
    except LoadError as error:
        return PARTIAL.format(error.message)
    return SUCCESS


@pytest.mark.parametrize("run", RUNS, ids=run_id)
def test_every_tensor_does_what_it_does_to_the_real_engine(run):
    ranks = ranks_of(run)
    before = [{name: rank.hash_of(name) for name in rank.params} for rank in ranks]
    for index, case in enumerate(run["cases"]):
        said = [load(rank, tensors_of(case, index)) for rank in ranks]
        after = [{name: rank.hash_of(name) for name in rank.params} for rank in ranks]
        changed = [
            {name: value for name, value in now.items() if value != then[name]}
            for now, then in zip(after, before, strict=True)
        ]
        before = after
        assert (said[0], changed) == (case["message"], case["changed"]), case["tensors"]


def test_the_recorded_cases_refuse_accept_and_skip():
    for run in RUNS:
        messages = [case["message"] for case in run["cases"]]
        assert SUCCESS in messages
        assert any("Attempted to load weight" in message for message in messages)
        assert any(not any(case["changed"]) for case in run["cases"] if case["message"] == SUCCESS)


@pytest.mark.parametrize("run", [run for run in RUNS if run["shape"] == "qwen3"], ids=run_id)
def test_only_qwen3_refuses_a_fused_name(run):
    rank = ranks_of(run)[0]
    with pytest.raises(LoadError) as error:
        rank.load([("model.layers.0.self_attn.qkv_proj.weight", np.zeros((128, 64), np.float32))])
    assert (error.value.type, error.value.message) == ("KeyError", "'model.layers.0.self_attn.qkqkv_proj.weight'")


@pytest.mark.parametrize("name", ["mlp.gate_proj", "self_attn.o_proj", "mlp.down_proj"])
def test_a_short_tensor_of_endless_width_is_not_padded(name):
    """A view of one element, 2**40 wide: on a GPU short inputs are padded, which would take a terabyte."""
    config = tiny_config("llama", False)
    rank = RankWeights(config, 0, 1, "float32", device="cuda")
    one = np.zeros((), np.float32)
    short = np.broadcast_to(one, (1, 2**40) if name.endswith("gate_proj") else (2**40, 1))
    with pytest.raises(LoadError) as error:
        rank.load([(f"model.layers.0.{name}.weight", short)])
    assert error.value.type == "AssertionError"


@pytest.mark.parametrize(("name", "message"), [(5, "5"), (None, "None"), ((1,), "tuple"), ("x", "'x'")])
def test_a_direct_load_names_what_it_does_not_know(name, message):
    rank = RankWeights(tiny_config("llama", False), 0, 1, "float32")
    with pytest.raises(LoadError) as error:
        rank.load_direct([(name, np.zeros(1))])
    assert (error.value.type, error.value.message) == ("KeyError", message)


def test_the_ways_of_names_that_are_not_remembered_are_found_all_the_same(monkeypatch):
    monkeypatch.setattr("fakes.engine.weights.MAX_ROUTES", 1)
    rank = RankWeights(tiny_config("llama", False), 0, 1, "float32")
    norm = np.full(64, 2, np.float32)
    for _ in range(2):
        assert rank.load([("nobody", norm), ("model.norm.weight", norm)]) == ["model.norm.weight"]
    assert len(rank._routes) == 1
