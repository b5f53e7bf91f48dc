from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.checker import NO_CUDA, CheckError, CheckerRules, WeightChecker
from fakes.engine.weights import RankWeights
from fakes.tiny import tiny_config, tiny_weights

GPU = CheckerRules(cuda=True)
DOWN = "model.layers.1.mlp.down_proj.weight"


def checker(rules=GPU, tp=1, rank=0):
    config = tiny_config("llama")
    weights = RankWeights(config, rank, tp, "bfloat16")
    weights.load(tiny_weights(config, 0).items())
    return WeightChecker(weights, rules)


def refused(check, action, *args):
    with pytest.raises(CheckError) as error:
        check.handle(action, *args)
    return error.value


def reload_without(check, *left_out):
    weights = tiny_weights(tiny_config("llama"), 0)
    check.weights.load((name, tensor) for name, tensor in weights.items() if name not in left_out)


def test_compare_finds_exactly_the_tensor_left_out():
    check = checker()
    check.handle("snapshot")
    check.handle("reset_tensors")
    reload_without(check, DOWN)
    error = refused(check, "compare")
    assert error.type == "Exception"
    lines = error.message.split("\n")
    assert lines[0] == "check tensor equality failed:"
    assert len(lines) == 2
    assert lines[1].startswith(f"name={DOWN} max_abs_err=")
    assert lines[1].endswith(
        "expect=raw(shape=(64, 128) dtype=torch.bfloat16) actual=raw(shape=(64, 128) dtype=torch.bfloat16) "
    )
    assert " num_exceed=81" in lines[1]


def test_a_failed_compare_keeps_the_snapshot_and_a_good_one_uses_it_up():
    check = checker()
    check.handle("snapshot")
    check.handle("reset_tensors")
    refused(check, "compare")
    reload_without(check)
    check.handle("compare")
    again = refused(check, "compare")
    assert (again.type, again.message) == ("AssertionError", "")


def test_up_to_0_5_12_a_good_compare_keeps_the_snapshot_and_says_less():
    check = checker(CheckerRules(cuda=True, consumes_snapshot=False, long_mismatch=False))
    check.handle("snapshot")
    check.handle("compare")
    check.handle("compare")
    check.weights.fill("model.norm.weight", 0)
    assert "num_exceed" not in refused(check, "compare").message


def test_compare_without_a_snapshot_has_no_words():
    assert refused(checker(), "compare").message == ""


def test_an_unknown_action_is_named():
    assert refused(checker(), "bogus").message == "Unsupported action='bogus'"


@pytest.mark.parametrize(("action", "rules"), [("compare", {}), ("checksum", {"checksum_needs_cuda": True})])
def test_without_cuda_it_says_so(action, rules):
    check = checker(CheckerRules(**rules))
    check.handle("snapshot")
    assert refused(check, action).message == NO_CUDA


def test_reset_fills_with_numbers_between_0_and_1():
    check = checker()
    check.handle("reset_tensors")
    for param in check.weights.params.values():
        values = param.astype(np.float32)
        assert 0 <= values.min() < values.max() <= 1


def test_skipped_tensors_are_neither_reset_nor_compared_nor_summed():
    check = checker()
    before = check.weights.hash_of(DOWN)
    check.handle("reset_tensors", ["down_proj"])
    assert check.weights.hash_of(DOWN) == before
    check.handle("snapshot")
    check.weights.fill(DOWN, 0)
    check.handle("compare", ["down_proj"])
    assert DOWN not in check.handle("checksum", ["down_proj"])["checksums"]


def test_a_nan_counts_as_a_difference():
    check = checker()
    check.handle("snapshot")
    check.weights.fill("model.norm.weight", np.nan)
    assert "num_exceed=64" in refused(check, "compare").message


def test_the_placement_is_a_dict_before_roles_came():
    info = checker(CheckerRules(role=False, per_gpu_checksum=False), tp=2, rank=1).handle("checksum")
    assert "per_gpu_checksum" not in info
    placement = info["parallelism_info"]
    assert (placement["tp_rank"], placement["tp_size"], placement["rank"], placement["size"]) == (1, 2, 1, 2)
    assert "role" not in placement


def test_ranks_have_different_sums():
    first, second = (checker(tp=2, rank=rank).handle("checksum")["checksums"] for rank in (0, 1))
    assert first[DOWN] != second[DOWN]
    assert first["model.norm.weight"] == second["model.norm.weight"]
