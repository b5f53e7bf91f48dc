"""Content of one rank: hashes that follow it at once, wide copies that never lag, poison, zeros, snapshots."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fakes.engine.loading import LoadError
from fakes.engine.weights import RankWeights
from fakes.tiny import tiny_config, tiny_weights

CONFIG = tiny_config("llama", False, "float32")
NORM, GATE_UP = "model.norm.weight", "model.layers.0.mlp.gate_up_proj.weight"


def made(seed=0, rank=0, tp=1, device="cpu"):
    held = RankWeights(CONFIG, rank, tp, "float32", device=device)
    held.load(tiny_weights(CONFIG, seed).items())
    return held


def fresh_hashes(held):
    return {name: hashlib.sha256(param.tobytes()).hexdigest()[:16] for name, param in held.params.items()}


def in_step(held):
    """All that is remembered is what would be computed now."""
    hashes = fresh_hashes(held)
    assert {name: held.hash_of(name) for name in held.params} == hashes
    text = "".join(f"{name}={value};" for name, value in hashes.items())
    assert held.state_id() == hashlib.sha256(text.encode()).hexdigest()[:16]
    for name, param in held.params.items():
        wide = held.wide(name)
        assert wide.dtype == np.float64
        assert (wide == param.T).all(), name
    return True


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.load([(NORM, np.ones(64, np.float32))]),
        lambda held: held.load_direct([(NORM, np.ones(64, np.float32))]),
        lambda held: held.fill(NORM, 2.0),
        lambda held: held.zero(),
        lambda held: held.poison(1),
        lambda held: held.restore({NORM: np.ones(64, np.float32)}),
    ],
    ids=["load", "direct", "fill", "zero", "poison", "restore"],
)
def test_every_change_is_seen_at_once(change):
    held = made()
    assert in_step(held)
    before, version = held.state_id(), held.version
    change(held)
    assert held.version != version
    assert held.state_id() != before
    assert in_step(held)


def test_nothing_is_computed_twice_or_marked_as_changed_by_reading():
    held = made()
    version = held.version
    assert held.wide(NORM) is held.wide(NORM)
    assert held.hash_of(NORM) is held.hash_of(NORM)
    assert held.state_id() is held.state_id()
    assert held.version == version


def test_a_load_that_fails_half_way_is_a_change():
    """A GPU engine writes gate before it finds that up is missing."""
    held = made(device="cuda")
    assert in_step(held)
    with pytest.raises(LoadError):
        held.load([(GATE_UP, np.ones((128 + 100, 64), np.float32))])
    assert (held.params[GATE_UP][:128] == 1).all()
    assert in_step(held)


def test_direct_stops_at_the_first_name_that_is_not_there():
    held = made()
    hostile = {("a",): "tuple", frozenset("a"): "frozenset"}  # made up by a payload: nothing of it is formatted
    for name in ("nope", None, 5, *hostile):
        with pytest.raises(LoadError) as error:
            held.load_direct([(NORM, np.zeros(64, np.float32)), (name, np.zeros(64, np.float32))])
        assert (error.value.type, error.value.message) == ("KeyError", hostile.get(name, repr(name)))
    assert not held.params[NORM].any()


def test_applied_names_are_told_in_order():
    held = made()
    weights = list(tiny_weights(CONFIG, 1).items())
    assert held.load([*reversed(weights), ("nope", weights[0][1])]) == [name for name, _ in reversed(weights)]
    device = [(name, param.copy()) for name, param in held.params.items()]
    assert held.load_direct(device) == list(held.params)


def test_poison_is_everywhere_and_nothing_that_an_update_left():
    first, again, second, other = made(), made(1), made(rank=1, tp=2), made(rank=0, tp=2)
    for held in (first, again, second, other):
        held.poison(5)
        for param in held.params.values():
            assert len(np.unique(param)) > 10
            assert -1 <= param.min() < -0.5
            assert 0.5 < param.max() <= 1
    assert first.state_id() == again.state_id()
    assert second.state_id() != other.state_id()
    before = first.state_id()
    first.poison(6)
    assert first.state_id() != before


def test_a_snapshot_is_a_copy():
    held = made()
    kept, before = held.snapshot(), held.state_id()
    held.zero()
    assert kept[NORM].any()
    held.restore(kept)
    kept[NORM][:] = 9
    assert held.state_id() == before


def test_a_fill_is_cast_to_the_models_dtype():
    held = RankWeights(CONFIG, 0, 1, "bfloat16")
    held.fill(NORM, 1.001)
    assert held.params[NORM][0] == 1.0
    assert held.version == 1 + RankWeights(CONFIG, 0, 1, "bfloat16").version


def test_whether_lm_head_is_embed_tokens():
    assert not made().tied
    assert RankWeights(tiny_config("llama", True), 0, 1, "bfloat16").tied
