"""Streams of one state that are cut differently by rank, put side by side: the same tensors of every rank at once.

A batch is a view of a buffer that its receiver uses again: it is good until the second batch after it is asked for. So
a rank is asked only when nothing of its last batch is left, and what is given out here has to be copied before the
next group is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.reference.buckets import Named
from harness.reference.errors import StreamsDiffer


@dataclass(frozen=True)
class Batch:
    """What one rank received at once: at least one whole tensor. `last`: nothing follows."""

    named: Named
    last: bool = False


@dataclass(frozen=True)
class Group:
    """The same tensors, in the same order, of every rank. `last`: every stream is at its end."""

    ranks: tuple[Named, ...]
    last: bool = False


def aligned(streams: Sequence[Iterator[Batch]]) -> Iterator[Group]:
    """Group after group. StreamsDiffer where names, shapes or dtypes differ, or where one stream ends before another.

    Every round asks the ranks that are empty and gives out as many tensors as all ranks have.
    """
    waiting: list[Named] = [[] for _ in streams]
    ended = [False for _ in streams]
    while True:
        for rank, stream in enumerate(streams):
            if not waiting[rank] and not ended[rank]:
                batch = next(stream, Batch([], last=True))
                waiting[rank], ended[rank] = list(batch.named), batch.last
        count = min(len(named) for named in waiting)
        if not count:
            _all_ended(waiting)
            return
        ranks = tuple(named[:count] for named in waiting)
        waiting = [named[count:] for named in waiting]
        _same(ranks)
        yield Group(ranks, last=all(ended) and not any(waiting))


def _all_ended(waiting: Sequence[Named]) -> None:
    for rank, named in enumerate(waiting):
        if named:
            short = next(other for other, rest in enumerate(waiting) if not rest)
            raise StreamsDiffer(
                f"transfer: rank {short}'s stream ended before {named[0][0]}, which rank {rank} has: "
                "the ranks ended with different weights"
            )


def _same(ranks: Sequence[Named]) -> None:
    for rank, named in enumerate(ranks):
        for (name, tensor), (first, like) in zip(named, ranks[0], strict=True):
            if (name, tensor.shape, tensor.dtype) != (first, like.shape, like.dtype):
                raise StreamsDiffer(
                    f"transfer: weight order diverged: rank {rank} has {name} {tensor.dtype} {tensor.shape} "
                    f"where rank 0 has {first} {like.dtype} {like.shape}"
                )
