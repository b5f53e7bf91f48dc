"""What a draft's ranks hold: at the launch, by a load of each format, and when their memory comes back."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.crash import Crash
from fakes.engine.draft import SHARED, Draft, draft_config, draft_weights
from tests.fakes.engine.control.driver import Driver

FC, BIAS = "model.fc.weight", "model.fc.bias"


def draft(quantisation: str = "") -> tuple[Driver, Draft]:
    engine = Driver("0.5.23", tp_size=2, device="cuda", eagle_draft=True, quantisation=quantisation)
    found = engine.core.scheduler.updater.draft
    assert found is not None
    return engine, found


def finals(found: Draft) -> list[int]:
    return [rank._kernels.finals for rank in found.ranks if rank._kernels is not None]


def test_one_layer_of_a_llama_without_what_the_target_lends() -> None:
    engine, found = draft()
    config = draft_config({**engine.model_config, "model_type": "qwen3"})
    assert (config["num_hidden_layers"], config["model_type"]) == (1, "llama")
    for rank in found.ranks:
        assert not set(SHARED) & (set(rank.params) | set(rank.layout))
        assert rank.params.keys() == rank.layout.keys()
        assert not [name for name in rank.params if "layers.1." in name]
    made = draft_weights(engine.model_config, 0)
    fc = found.ranks[1].params[FC]
    assert np.array_equal(fc, made["fc.weight"].astype(fc.dtype))
    assert 0.05 < float(np.std(made["fc.weight"])) < 0.2


def test_a_quantised_draft_is_made_final_once_and_again_with_every_folder() -> None:
    _, found = draft("mxfp8")
    assert finals(found) == [1, 1]
    found.read([])
    assert finals(found) == [2, 2]


def test_a_load_by_each_format() -> None:
    _, found = draft()
    bias = np.full_like(found.ranks[1].params[BIAS], 3)
    found.load(1, [(BIAS, bias)], "direct")
    assert (found.ranks[1].params[BIAS] == 3).all()
    assert not (found.ranks[0].params[BIAS] == 3).any()
    for value, how in ((4, None), (5, "flattened_bucket")):
        found.load(0, [("fc.bias", np.full_like(bias, value)), ("lm_head.weight", bias)], how)
        assert (found.ranks[0].params[BIAS] == value).all()
    for named, how, kind in (
        ([("nobody", bias)], "direct", "KeyError"),
        ([("fc.bias", bias[:3])], None, "AssertionError"),
        ([], "strange", "NotImplementedError"),
    ):
        with pytest.raises(Crash) as told:
            found.load(1, named, how)
        assert (told.value.rank, told.value.raised.type) == (1, kind)


def test_memory_that_comes_back_holds_what_was_kept_or_nothing() -> None:
    _, found = draft()
    before = [rank.state_id() for rank in found.ranks]
    found.keep()
    found.resumed(0)
    assert [rank.state_id() for rank in found.ranks] == before
    found.keep()
    for rank in found.ranks:
        rank.zero()
    found.resumed(7)
    assert [rank.state_id() for rank in found.ranks] == before
    found.resumed(7)
    assert all(rank.params[FC].any() for rank in found.ranks)
    assert [rank.state_id() for rank in found.ranks] != before
    found.resumed(0)
    assert not any(param.any() for rank in found.ranks for param in rank.params.values())
