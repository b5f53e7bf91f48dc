"""/weights_checker word by word: what a mismatch says, what is skipped, where checksums come from
(utils/weight_checker.py@0.5.23)."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fakes.engine.checker import CheckError, CheckerRules, WeightChecker, engine_checksum, overall_checksum
from fakes.engine.weights import RankWeights
from fakes.tiny import tiny_config, tiny_weights

CONFIG = tiny_config("llama", False, "float32")
NORM, DOWN = "model.norm.weight", "model.layers.1.mlp.down_proj.weight"


def checker(tp=1, rank=0, seed=0, **rules):
    weights = RankWeights(CONFIG, rank, tp, "float32")
    weights.load(tiny_weights(CONFIG, 0).items())
    return WeightChecker(weights, CheckerRules(cuda=True, **rules), seed=seed)


def refused(check, action, *args):
    with pytest.raises(CheckError) as error:
        check.handle(action, *args)
    assert str(error.value) == f"{error.value.type}: {error.value.message}"
    return error.value.type, error.value.message


def changed(check, **values):
    """Snapshot of ones, then add to single elements of the norm and of down_proj."""
    check.weights.fill(NORM, 1.0)
    check.weights.fill(DOWN, 1.0)
    assert check.handle("snapshot") is None
    for name, delta in ((NORM, values.get("norm")), (DOWN, values.get("down"))):
        if delta:
            check.weights.params[name].flat[: len(delta)] += np.array(delta, np.float32)
    return check


def test_the_long_text_of_0_5_17_and_later():
    check = changed(checker(), norm=[0.5, -1.5, 0.0], down=[4.0])
    type_, text = refused(check, "compare")
    head, *lines = text.split("\n")
    assert (type_, head) == ("Exception", "check tensor equality failed:")
    down, norm = (dict(item.split("=", 1) for item in line.split(" ")[:4]) for line in lines)
    assert list(norm) == list(down) == ["name", "max_abs_err", "mean_abs_err", "num_exceed"]
    assert (norm["name"], float(norm["max_abs_err"]), norm["num_exceed"]) == (NORM, 1.5, "2")
    assert float(norm["mean_abs_err"]) == pytest.approx(2.0 / 64)
    assert (down["name"], float(down["max_abs_err"]), down["num_exceed"]) == (DOWN, 4.0, "1")
    assert float(down["mean_abs_err"]) == pytest.approx(4.0 / (64 * 128))
    shape = "raw(shape=(64,) dtype=torch.float32)"
    assert lines[1].partition(" expect=")[2] == f"{shape} actual={shape} "


def test_the_short_text_of_0_5_12():
    _, text = refused(changed(checker(long_mismatch=False), norm=[0.5]), "compare")
    assert text == f"check tensor equality failed:\nname={NORM} max_abs_err=0.5 mean_abs_err={0.5 / 64} "


def test_nan_is_a_difference_and_counted_as_one():
    check = changed(checker(), norm=[np.nan])
    assert "num_exceed=1 " in refused(check, "compare")[1]


def test_equal_infinities_differ_as_they_do_in_torch():
    """inf - inf is nan, and nan is not 0."""
    check = checker()
    check.weights.fill(NORM, np.inf)
    check.handle("snapshot")
    with np.errstate(all="raise"):
        assert refused(check, "compare")[1].count("name=") == 1
        assert set(np.geterr().values()) == {"raise"}


def test_the_first_tensor_counts_too():
    check = checker()
    check.handle("snapshot")
    check.weights.fill("model.embed_tokens.weight", 1.0)
    assert refused(check, "compare")[1].count("name=model.embed_tokens.weight ") == 1


def test_names_are_skipped_by_any_part_of_them():
    check = changed(checker(), norm=[1.0], down=[1.0])
    assert refused(check, "compare", ["norm"])[1].count("name=") == 1
    assert refused(check, "compare", ["nope", "mlp"])[1].count("name=") == 1
    assert check.handle("compare", ["norm", "down_proj"]) is None
    sums = checker().handle("checksum", ["norm"])["checksums"]
    assert sums
    assert not any("norm" in name for name in sums)
    check = checker()
    before = check.weights.params[NORM].copy()
    check.handle("reset_tensors", [NORM])
    assert (check.weights.params[NORM] == before).all()
    assert all((p >= 0).all() and (p < 1).all() for n, p in check.weights.params.items() if n != NORM)


def test_reset_is_the_same_for_the_same_seed_and_differs_by_rank_and_time():
    ids = []
    for seed, rank, times in ((0, 0, 1), (0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2)):
        check = checker(2, rank, seed)
        for _ in range(times):
            check.handle("reset_tensors")
        ids.append(check.weights.state_id())
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4


def test_a_shape_that_differs_is_an_assertion():
    check = checker()
    check.handle("snapshot")
    check._snapshot[NORM] = np.zeros((2, 3), np.float32)
    assert refused(check, "compare") == ("AssertionError", "torch.Size([2, 3]) torch.Size([64])")


@pytest.mark.parametrize(("rank", "tp"), [(0, 1), (1, 2)])
@pytest.mark.parametrize("role", [True, False])
def test_a_checksum_says_what_and_where(rank, tp, role):
    check = checker(tp, rank, role=role)
    found = check.handle("checksum")
    assert list(found) == ["checksums", "per_gpu_checksum", "parallelism_info"]
    place = {"tp_rank": rank, "tp_size": tp, "dp_rank": 0, "dp_size": 1, "pp_rank": 0, "pp_size": 1}
    place |= {"rank": rank, "size": tp}
    assert found["parallelism_info"] == ([{"role": "target", **place}] if role else place)
    params = check.weights.params
    assert found["checksums"] == {n: hashlib.sha256(p.tobytes()).hexdigest()[:16] for n, p in params.items()}
    text = "".join(name + found["checksums"][name] for name in sorted(params))
    assert (
        found["per_gpu_checksum"] == hashlib.sha256(text.encode()).hexdigest() == overall_checksum(found["checksums"])
    )


def test_0_5_12_has_no_checksum_per_gpu():
    assert list(checker(per_gpu_checksum=False).handle("checksum")) == ["checksums", "parallelism_info"]


def test_the_engines_checksum_is_that_of_its_ranks_in_order():
    assert engine_checksum(["a", "b"]) == hashlib.sha256(b"ab").hexdigest() != engine_checksum(["b", "a"])


def test_what_needs_cuda():
    """Up to 0.5.22 a checksum does; snapshot and reset never do; compare always does."""
    weights = RankWeights(CONFIG, 0, 1, "float32")
    check = WeightChecker(weights, CheckerRules(checksum_needs_cuda=True))
    no_cuda = ("AssertionError", "Torch not compiled with CUDA enabled")
    assert refused(check, "compare") == ("AssertionError", ""), "the missing snapshot comes first"
    check.handle("snapshot")
    check.handle("reset_tensors")
    assert refused(check, "compare") == no_cuda
    assert refused(check, "checksum") == no_cuda
    assert WeightChecker(weights, CheckerRules()).handle("checksum")["checksums"]
    assert WeightChecker(weights, CheckerRules(cuda=True, checksum_needs_cuda=True)).handle("checksum")["checksums"]
    assert refused(check, "bogus") == ("Exception", "Unsupported action='bogus'")
