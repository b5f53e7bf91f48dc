"""Streams of one state that are cut differently by rank, put side by side: the same tensors of every rank at once.

A batch is a view of a buffer that its receiver uses again: it is good until the second batch after it is asked for. So
a rank is asked only when nothing of its last batch is left, and what is given out here has to be copied before the
next group is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.reference.buckets import Named
from harness.reference.errors import StreamsDiffer


@dataclass(frozen=True)
class Batch:
    """What one rank received at once: whole tensors, none only where its stream ends. `last`: nothing follows."""

    named: Named
    last: bool = False


@dataclass(frozen=True)
class Group:
    """The same tensors, in the same order, of every rank. `last`: every stream is at its end."""

    ranks: tuple[Named, ...]
    last: bool = False


class Stream(Protocol):
    """What one rank receives."""

    def news(self) -> bool:
        """Whether `take` has something to do. Never waits, never raises."""
        ...

    def take(self) -> Batch | None:
        """Read what came: the next batch, or None as long as no whole tensor has come."""
        ...


def aligned(streams: Sequence[Stream], wait: Callable[[Callable[[], bool], str], None]) -> Iterator[Group]:
    """Group after group. StreamsDiffer where names, shapes or dtypes differ, or where one stream ends before another.

    Every round hears the ranks that are empty, all of them at once (`wait(ready, what)` returns when `ready()`, or
    raises), and gives out as many tensors as all ranks have. All at once, since the senders walk one export together:
    one that is not read holds up the one that is waited for.
    """
    waiting: list[Named] = [[] for _ in streams]
    ended = [False for _ in streams]
    while True:
        empty = [rank for rank in range(len(streams)) if not waiting[rank] and not ended[rank]]
        while empty:
            wait(lambda ranks=empty: any(streams[rank].news() for rank in ranks), _what(empty))  # type: ignore[misc]
            for rank in [rank for rank in empty if streams[rank].news()]:
                batch = streams[rank].take()
                if batch is not None:
                    waiting[rank], ended[rank] = list(batch.named), batch.last
                    empty.remove(rank)
        count = min(len(named) for named in waiting)
        if not count:
            _all_ended(waiting)
            return
        ranks = tuple(named[:count] for named in waiting)
        waiting = [named[count:] for named in waiting]
        _same(ranks)
        yield Group(ranks, last=all(ended) and not any(waiting))


def _what(ranks: Sequence[int]) -> str:
    return f"a bucket for tp rank {', '.join(map(str, ranks))}"


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
