"""Streams of several ranks, put side by side: any cuts, ends and names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.reference.errors import StreamsDiffer
from harness.reference.transports.aligning import Batch, aligned


class Cut:
    """One rank's stream: batches of the given sizes, in two buffers that are used again."""

    def __init__(self, values, sizes):
        self.values, self.sizes, self.taken, self.at = values, list(sizes), 0, 0
        self.buffers = [np.zeros(len(values), dtype=np.int64) for _ in range(2)]

    def news(self):
        return True

    def take(self):
        size = self.sizes[self.taken % len(self.sizes)] if self.sizes else len(self.values)
        buffer = self.buffers[self.taken % 2]
        buffer[:] = -1
        some = self.values[self.at : self.at + size]
        buffer[: len(some)] = some
        self.taken, self.at = self.taken + 1, self.at + len(some)
        named = [(f"t{v}", buffer[i : i + 1]) for i, v in enumerate(some)]
        return Batch(named, last=self.at == len(self.values))


def at_once(ready, what):
    assert ready(), what


def sizes():
    return st.lists(st.integers(1, 5), min_size=1, max_size=6)


@given(count=st.integers(1, 40), cuts=st.lists(sizes(), min_size=1, max_size=4))
def test_any_cuts_keep_order_and_values_and_hold_nothing_across_a_recycle(count, cuts):
    got = [[] for _ in cuts]
    lasts = []
    for group in aligned([Cut(list(range(count)), cut) for cut in cuts], at_once):
        lasts.append(group.last)
        assert len({len(named) for named in group.ranks}) == 1
        for rank, named in enumerate(group.ranks):
            got[rank].extend((name, int(value[0])) for name, value in named)
    assert got == [[(f"t{v}", v) for v in range(count)]] * len(cuts)
    assert lasts == [False] * (len(lasts) - 1) + [True]


@given(count=st.integers(1, 20), short=st.integers(0, 1), cuts=st.tuples(sizes(), sizes()))
def test_a_stream_that_ends_early_is_an_error_and_nobody_is_told_last(count, short, cuts):
    lengths = [count, count]
    lengths[short] -= 1
    groups = []
    with pytest.raises(StreamsDiffer, match=f"rank {short}'s stream ended before t{count - 1}, which rank {1 - short}"):
        groups.extend(
            g.last for g in aligned([Cut(list(range(n)), c) for n, c in zip(lengths, cuts, strict=True)], at_once)
        )
    assert not any(groups)


@pytest.mark.parametrize(
    "other",
    [("b", np.zeros(2, np.float32)), ("a", np.zeros(3, np.float32)), ("a", np.zeros(2, np.float64))],
    ids=["name", "shape", "dtype"],
)
def test_ranks_that_differ_are_an_error(other):
    class One:
        def __init__(self, item):
            self.item = item

        def news(self):
            return True

        def take(self):
            return Batch([self.item], last=True)

    with pytest.raises(StreamsDiffer, match="weight order diverged: rank 1"):
        list(aligned([One(("a", np.zeros(2, np.float32))), One(other)], at_once))


def test_empty_streams_end_at_once():
    assert list(aligned([Cut([], []), Cut([], [])], at_once)) == []


def test_ranks_are_heard_all_at_once():
    asked = []

    def wait(ready, what):
        asked.append(what)
        assert ready()

    list(aligned([Cut([0, 1], [1]), Cut([0, 1], [2])], wait))
    assert asked == ["a bucket for tp rank 0, 1", "a bucket for tp rank 0"]


# -- from trainer ranks to engines -------------------------------------------------------------------------------------
