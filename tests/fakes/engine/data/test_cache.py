from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.engine.cache import PrefixCache


def kv_of(tokens, mark=0.0):
    return np.array([[token, mark] for token in tokens], dtype=float)


def filled(*sequences, max_tokens=100, state="a"):
    cache = PrefixCache(max_tokens)
    for tokens in sequences:
        cache.insert(tokens, kv_of(tokens), [state] * len(tokens))
    return cache


def test_the_longest_prefix_comes_back_with_its_kv_and_its_weights():
    cache = filled([1, 2, 3, 4])
    n, kv, states = cache.match([1, 2, 3, 9, 9])
    assert n == 3
    assert kv[:, 0].tolist() == [1, 2, 3]
    assert states == ["a"] * 3
    assert cache.match([9]) == (0, None, [])


def test_a_prefix_that_is_there_keeps_its_old_kv():
    cache = filled([1, 2, 3])
    known = cache.insert([1, 2, 3, 4], kv_of([1, 2, 3, 4], mark=7), ["b"] * 4)
    _, kv, states = cache.match([1, 2, 3, 4])
    assert known == 3
    assert states == ["a", "a", "a", "b"]
    assert kv[:, 1].tolist() == [0, 0, 0, 7]


def test_namespaces_do_not_share():
    cache = filled([1, 2])
    cache.insert([1, 2], kv_of([1, 2]), ["b", "b"], extra_key="adapter")
    assert cache.match([1, 2], "adapter")[2] == ["b", "b"]
    assert cache.match([1, 2])[2] == ["a", "a"]
    assert cache.match([1, 2], "other")[0] == 0


def test_the_least_recently_used_leaf_goes_first():
    cache = filled([1, 2], [3, 4], max_tokens=4)
    cache.match([1, 2])
    cache.insert([5], kv_of([5]), ["a"])
    assert cache.size == 4
    assert cache.match([3, 4])[0] == 1
    assert cache.match([1, 2])[0] == 2


def test_a_pinned_prefix_is_not_evicted():
    cache = filled([1, 2], [3, 4], max_tokens=4)
    pin = cache.pin([1, 2, 9])
    assert pin.length == 2
    assert cache.pinned == 2
    assert cache.evict(4) == 2
    assert cache.match([1, 2])[0] == 2
    cache.unpin(pin)
    assert cache.evict(4) == 2
    assert cache.size == 0
    assert cache.pin([1]) is None
    cache.unpin(None)


def test_a_prefix_that_does_not_fit_is_kept_as_far_as_it_goes():
    cache = PrefixCache(3)
    cache.insert([1, 2, 3, 4, 5], kv_of([1, 2, 3, 4, 5]), ["a"] * 5)
    assert cache.size == 3
    assert cache.match([1, 2, 3, 4, 5])[0] == 3


def test_flush_forgets_everything():
    cache = filled([1, 2], [3])
    assert cache.state_ids() == {"a"}
    cache.flush()
    assert (cache.size, cache.state_ids(), cache.match([1])[0]) == (0, set(), 0)


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="3 tokens, 2 KV entries, 1 state ids"):
        PrefixCache(9).insert([1, 2, 3], kv_of([1, 2]), ["a"])


def test_the_cache_keeps_its_own_copy():
    cache, kv = PrefixCache(9), kv_of([1])
    cache.insert([1], kv, ["a"])
    kv[:] = 99
    assert cache.match([1])[1][0, 0] == 1


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=12), st.integers(1, 12))
def test_whatever_is_inserted_the_size_holds_and_matches_are_true(sequences, limit):
    cache = PrefixCache(limit)
    for tokens in sequences:
        cache.insert(tokens, kv_of(tokens), ["a"] * len(tokens))
        assert cache.size == len(cache._nodes()) <= limit
        assert cache.pinned == 0
        n, kv, states = cache.match(tokens)
        assert n <= len(tokens)
        assert len(states) == n
        if n:
            assert kv[:, 0].tolist() == tokens[:n]
