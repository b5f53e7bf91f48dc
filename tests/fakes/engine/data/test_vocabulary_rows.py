"""How the rows of a vocabulary are cut where the number of ranks is no power of two."""

from __future__ import annotations

import pytest

from fakes.engine.layout import _vocab


@pytest.mark.parametrize(
    ("vocab", "tp", "cut", "rows"),
    [
        (190, 6, 32, [32, 32, 32, 32, 32, 30]),
        (130, 3, 64, [64, 64, 2]),
        (120, 6, 64, [64, 56, 0, 0, 0, 0]),
        (64, 3, 64, [64, 0, 0]),
    ],
)
def test_padding_grows_with_the_ranks_only_where_it_must(vocab: int, tp: int, cut: int, rows: list[int]) -> None:
    """layers/vocab_parallel_embedding.py@0.5.23: padded to 64, to 64 * tp where that does not divide."""
    found = [_vocab(vocab, 8, rank, tp) for rank in range(tp)]
    assert [param.shape for param in found] == [(cut, 8)] * tp
    assert [param.rows for param in found] == rows
