"""A set-up is read strictly: every key, every type, every guard, every cell of the table."""

from __future__ import annotations

import itertools

import pytest

from harness.reference.errors import BadSetup
from harness.reference.setup import KEYS, SETTINGS, TABLE, TRAINERS, transport_of

PLAIN = {
    "colocated": True,
    "trainer": "megatron",
    "transport": "auto",
    "nodes_per_engine": 1,
    "tensor_parallel_size": 2,
    "data_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "expert_parallel_size": 1,
    "pause_mode": "retract",
    "kv_scales": None,
    "quantisation": {"scheme": "bf16"},
}
SIZES = frozenset({2})


def test_every_cell_is_in_the_table_or_refused():
    for colocated, trainer, asked in itertools.product((True, False), TRAINERS, SETTINGS):
        setup = {**PLAIN, "colocated": colocated, "trainer": trainer, "transport": asked}
        if (colocated, trainer, asked) in TABLE:
            assert transport_of(setup, SIZES) == TABLE[colocated, trainer, asked]
        else:
            with pytest.raises(BadSetup, match=r"contradicts|fsdp2 is for colocated"):
                transport_of(setup, SIZES)


def test_a_transport_that_is_asked_for_is_the_one_that_is_used():
    assert all(asked in ("auto", transport) for (_, _, asked), transport in TABLE.items())


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key(key):
    with pytest.raises(BadSetup, match=f"lacks {key}: a missing key is never a default"):
        transport_of({k: v for k, v in PLAIN.items() if k != key}, SIZES)


@pytest.mark.parametrize("key", KEYS)
def test_a_wrong_type(key):
    with pytest.raises(BadSetup, match=f"{key} is 3.5: of a wrong type"):
        transport_of({**PLAIN, key: 3.5}, SIZES)


def test_true_is_no_number():
    with pytest.raises(BadSetup, match="nodes_per_engine is True"):
        transport_of({**PLAIN, "nodes_per_engine": True}, SIZES)


def test_a_key_that_nobody_knows():
    with pytest.raises(BadSetup, match="unknown keys: tensor_paralel_size"):
        transport_of({**PLAIN, "tensor_paralel_size": 2}, SIZES)


def test_all_that_is_missing_and_all_that_is_unknown_is_named():
    some = {key: value for key, value in PLAIN.items() if key not in ("trainer", "kv_scales")}
    with pytest.raises(BadSetup, match=r"^the setup lacks trainer, kv_scales: a missing key is never a default$"):
        transport_of(some, SIZES)
    with pytest.raises(BadSetup, match=r"^the setup has unknown keys: 7, x, y$"):
        transport_of({"y": 0, **PLAIN, "x": 0, 7: 0}, SIZES)


@pytest.mark.parametrize(
    ("colocated", "asked", "where"), [(True, "distributed", "colocated"), (False, "tensor", "separate")]
)
def test_a_contradiction_says_where_the_engines_are(colocated, asked, where):
    with pytest.raises(BadSetup) as told:
        transport_of({**PLAIN, "colocated": colocated, "transport": asked}, SIZES)
    assert str(told.value) == f"transport '{asked}' contradicts {where} engines: nothing else is tried instead"


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("nodes_per_engine", 2, "several nodes"),
        ("data_parallel_size", 2, "replicas"),
        ("pipeline_parallel_size", 2, "stages"),
        ("expert_parallel_size", 8, "experts"),
        ("pause_mode", "in_place", "keeps KV"),
        ("pause_mode", "nap", "neither abort nor retract"),
        ("kv_scales", {}, "KV cache"),
        ("trainer", "pdp11", "none of megatron, fsdp2"),
        ("transport", "pigeon", "none of auto"),
    ],
)
def test_a_guard_names_its_key_its_value_and_why(key, value, why):
    with pytest.raises(BadSetup, match=why) as told:
        transport_of({**PLAIN, key: value}, SIZES)
    assert str(told.value).startswith(f"{key} {value!r} is refused")


def test_sizes_are_those_of_the_engines():
    with pytest.raises(BadSetup, match="tensor_parallel_size 2 contradicts the engines, which have 1, 2"):
        transport_of(PLAIN, frozenset({1, 2}))


@pytest.mark.parametrize("setup", [None, [], "auto"])
def test_what_is_no_mapping(setup):
    with pytest.raises(BadSetup, match="a setup is a mapping"):
        transport_of(setup, SIZES)
