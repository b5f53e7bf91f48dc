"""The prefix cache against a dictionary of prefixes: the same matches, evictions and pins, whatever happens to both.

The model is the contract of a radix cache with page size 1 (mem_cache/radix_cache.py@0.5.23): the longest prefix
matches, what is there keeps its KV, the least recently used leaf goes first, and nothing that is pinned goes.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from fakes.engine.cache import PrefixCache

KEYS = (None, "adapter")


class Prefixes:
    """One entry per cached prefix: [KV, weights, last use, pins]."""

    def __init__(self, room):
        self.room, self.clock, self.entries = room, 0, {}

    def known(self, tokens, key):
        count = 0
        while count < len(tokens) and (key, tuple(tokens[: count + 1])) in self.entries:
            count += 1
        return count

    def path(self, tokens, key, count):
        return [self.entries[key, tuple(tokens[: i + 1])] for i in range(count)]

    def touch(self, tokens, key):
        self.clock += 1
        found = self.path(tokens, key, self.known(tokens, key))
        for entry in found:
            entry[2] = self.clock
        return found

    def insert(self, tokens, key, kv, state):
        known = len(self.touch(tokens, key))
        self.hold(tokens, key, known, 1)
        self.evict(len(self.entries) + len(tokens) - known - self.room)
        self.hold(tokens, key, known, -1)
        self.clock += 1
        for i in range(known, len(tokens)):
            if len(self.entries) < self.room:
                self.entries[key, tuple(tokens[: i + 1])] = [kv[i], state, self.clock, 0]
        return known

    def hold(self, tokens, key, count, by):
        for entry in self.path(tokens, key, count):
            entry[3] += by

    def evict(self, wanted):
        gone = 0
        while gone < wanted:
            parents = {(key, tokens[:-1]) for key, tokens in self.entries}
            leaves = [at for at, entry in self.entries.items() if at not in parents and not entry[3]]
            if not leaves:
                break
            del self.entries[min(leaves, key=lambda at: self.entries[at][2])]
            gone += 1
        return gone


def same(cache, model):
    assert cache.size == len(model.entries)
    assert cache.pinned == sum(1 for entry in model.entries.values() if entry[3])
    assert cache.state_ids() == {entry[1] for entry in model.entries.values()}
    for key, tokens in model.entries:
        held = cache.pin(tokens, key)
        assert held.length == len(tokens)
        cache.unpin(held)


@pytest.mark.parametrize("seed", range(40))
def test_the_cache_does_what_a_dictionary_of_prefixes_does(seed):
    rng = random.Random(seed)
    room = rng.choice([1, 4, 9, 30])
    cache, model = PrefixCache(room), Prefixes(room)
    pins = []
    for step in range(60):
        tokens = [rng.randrange(3) for _ in range(rng.choice([1, 2, 3, 5, 8]))]
        key = rng.choice(KEYS)
        match rng.choice(["insert", "insert", "match", "match", "pin", "unpin", "evict", "flush"]):
            case "insert":
                kv = np.full((len(tokens), 2), step, dtype=float)
                assert cache.insert(tokens, kv, [f"s{step}"] * len(tokens), key) == model.insert(
                    tokens, key, kv, f"s{step}"
                )
            case "match":
                count, kv, states = cache.match(tokens, key)
                wanted = model.path(tokens, key, model.known(tokens, key))
                if wanted:
                    model.touch(tokens, key)
                assert (count, states) == (len(wanted), [entry[1] for entry in wanted])
                assert kv is None if not wanted else (kv == [entry[0] for entry in wanted]).all()
            case "pin" if len(pins) < 3:
                count = model.known(tokens, key)
                pin = cache.pin(tokens, key)
                assert (pin.length if pin else 0) == count
                model.hold(tokens, key, count, 1)
                pins.append((tokens, key, count, pin))
            case "unpin" if pins:
                tokens, key, count, pin = pins.pop()
                cache.unpin(pin)
                model.hold(tokens, key, count, -1)
            case "evict":
                count = rng.randrange(5)
                assert cache.evict(count) == model.evict(count)
            case "flush" if not pins and rng.random() < 0.2:
                cache.flush()
                model.entries.clear()
        same(cache, model)
