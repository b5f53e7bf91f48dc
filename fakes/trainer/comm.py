"""Collectives between the trainer's ranks, under a world's baton or between plain threads.

Values are handed over as they are, never copied: a trainer that reuses its buffer is seen to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from fakes.world import World

T = TypeVar("T")


class Group(Protocol):
    """Collectives of ranks 0..size-1, called by every rank in the same order. TimeoutError when the others do not
    come."""

    def barrier(self, rank: int, timeout_s: float | None = None) -> None:
        """Wait for all."""
        ...

    def all_gather(self, rank: int, value: Any, timeout_s: float | None = None) -> list[Any]:
        """Every rank's value, on every rank."""
        ...

    def gather(self, rank: int, value: Any, dst: int = 0, timeout_s: float | None = None) -> list[Any] | None:
        """Every rank's value on `dst`, None elsewhere."""
        ...

    def broadcast(self, rank: int, value: Any = None, src: int = 0, timeout_s: float | None = None) -> Any:
        """The value of `src`, on every rank."""
        ...


class Crew(Protocol):
    """Where rank functions run and meet."""

    def run(self, fn: Callable[[int], T], ranks: int, timeout_s: float) -> list[T | BaseException]:
        """`fn(rank)` on every rank; results or errors by rank, TimeoutError for one that is not back in time."""
        ...

    def group(self, size: int, name: str) -> Group:
        """A new group of `size` ranks."""
        ...


class WorldCrew:
    """Ranks as participants of a world: virtual time, one runs at a time, the seed picks the next."""

    def __init__(self, world: World) -> None:
        self._world = world

    def run(self, fn: Callable[[int], T], ranks: int, timeout_s: float) -> list[T | BaseException]:
        """Spawn, join, collect."""
        people = [self._world.spawn(fn, rank, name=f"trainer rank {rank}") for rank in range(ranks)]
        self._world.join(*people, timeout_s=timeout_s)
        return [
            person.error or person.result if person.done else TimeoutError(f"trainer rank {rank} is not back")
            for rank, person in enumerate(people)
        ]

    def group(self, size: int, name: str) -> Group:
        """A group of the world."""
        return self._world.group(size, name)


class ThreadCrew:
    """Ranks as plain threads in real seconds, for engines in other processes."""

    def run(self, fn: Callable[[int], T], ranks: int, timeout_s: float) -> list[T | BaseException]:
        """Start, join, collect. A thread that never ends is left behind as a daemon."""
        out: list[T | BaseException] = [TimeoutError(f"trainer rank {rank} is not back") for rank in range(ranks)]

        def body(rank: int) -> None:
            try:
                out[rank] = fn(rank)
            except BaseException as error:
                out[rank] = error

        threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout_s)
        return list(out)

    def group(self, size: int, name: str) -> Group:
        """A group of threads."""
        return ThreadGroup(size, name)


class ThreadGroup:
    """`Group` between plain threads, in real seconds."""

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self.name = name
        self._changed = threading.Condition()
        self._turn = [0] * size
        self._meetings: dict[tuple[int, str], dict[int, Any]] = {}

    def barrier(self, rank: int, timeout_s: float | None = None) -> None:
        """Wait for all."""
        self._meet(rank, "barrier", None, timeout_s)

    def all_gather(self, rank: int, value: Any, timeout_s: float | None = None) -> list[Any]:
        """Every rank's value, on every rank."""
        return self._meet(rank, "all_gather", value, timeout_s)

    def gather(self, rank: int, value: Any, dst: int = 0, timeout_s: float | None = None) -> list[Any] | None:
        """Every rank's value on `dst`, None elsewhere."""
        values = self._meet(rank, f"gather(dst={dst})", value, timeout_s)
        return values if rank == dst else None

    def broadcast(self, rank: int, value: Any = None, src: int = 0, timeout_s: float | None = None) -> Any:
        """The value of `src`, on every rank."""
        return self._meet(rank, f"broadcast(src={src})", value, timeout_s)[src]

    def _meet(self, rank: int, op: str, value: Any, timeout_s: float | None) -> list[Any]:
        with self._changed:
            turn = self._turn[rank]
            self._turn[rank] = turn + 1
            here = self._meetings.setdefault((turn, op), {})
            here[rank] = value
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: len(here) == self.size, timeout_s):
                missing = sorted(set(range(self.size)) - set(here))
                raise TimeoutError(
                    f"{op} #{turn} of group {self.name!r} as rank {rank} of {self.size}: "
                    f"ranks {missing} did not come within {timeout_s:g} s"
                )
            return [here[r] for r in range(self.size)]


class Communicators:
    """The groups of one run: one per set of ranks, made anew for each run, as after an aborted communicator."""

    def __init__(self, crew: Crew, ranks: int) -> None:
        self._crew = crew
        self._ranks = ranks
        self._groups: dict[tuple[int, ...], Group] = {}
        self._lock = threading.Lock()

    def of(self, members: Sequence[int] | None = None) -> tuple[Group, tuple[int, ...]]:
        """The group of `members` (global ranks; all by default) and the members. ValueError for an unknown or double
        rank."""
        key = tuple(range(self._ranks)) if members is None else tuple(members)
        if len(set(key)) != len(key) or not set(key) <= set(range(self._ranks)):
            raise ValueError(f"ranks {list(key)} are not a group of {self._ranks} trainer ranks")
        with self._lock:
            if key not in self._groups:
                self._groups[key] = self._crew.group(len(key), f"trainer ranks {list(key)}")
            return self._groups[key], key
