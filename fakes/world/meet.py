"""Where participants meet: barrier, lock, and the collectives of a group of ranks."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakes.world.baton import Baton, Participant


class MeetTimeout(TimeoutError):
    """The others did not come in time."""


class Barrier:
    """Everybody goes on when `parties` have come; then it can be used again."""

    def __init__(self, baton: Baton, parties: int, name: str = "barrier") -> None:
        self.parties = parties
        self.name = name
        self._baton = baton
        self._round = 0
        self._here: list[str] = []

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the others; MeetTimeout after `timeout_s` virtual seconds, and the caller counts as never come."""
        mine, me = self._round, self._baton.me().name
        self._here.append(me)
        if len(self._here) == self.parties:
            self._round += 1
            self._here = []
        until = None if timeout_s is None else self._baton.now + timeout_s
        what = f"barrier {self.name!r} of {self.parties}"
        try:
            met = self._baton.block(lambda: self._round > mine, until, what)
        except BaseException:
            self._leave(mine, me)
            raise
        if not met:
            here = ", ".join(self._here)
            self._leave(mine, me)
            raise MeetTimeout(f"barrier {self.name!r}: only {here} of {self.parties} came within {timeout_s:g} s")

    def _leave(self, mine: int, me: str) -> None:
        if self._round == mine and me in self._here:
            self._here.remove(me)


class Lock:
    """One participant at a time. Not re-entrant: taking it twice is a deadlock, and is named as one."""

    def __init__(self, baton: Baton, name: str = "lock") -> None:
        self.name = name
        self._baton = baton
        self._owner: Participant | None = None

    @property
    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._owner is not None

    def acquire(self, timeout_s: float | None = None) -> bool:
        """Take it; False after `timeout_s` virtual seconds."""
        until = None if timeout_s is None else self._baton.now + timeout_s
        owner = f", held by {self._owner.name}" if self._owner else ""
        if not self._baton.block(lambda: self._owner is None, until, f"lock {self.name!r}{owner}"):
            return False
        self._owner = self._baton.me()
        return True

    def release(self) -> None:
        """Give it back; RuntimeError when it was free."""
        if self._owner is None:
            raise RuntimeError(f"lock {self.name!r} is not held")
        self._owner = None

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


class _Meeting:
    __slots__ = ("left", "values")

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.left = 0


class Group:
    """Collectives of ranks 0..size-1, each called by its own participant, in the same order on every rank.

    Values are handed over as they are, never copied: a trainer that reuses its buffer is seen to. Ranks that call
    different operations never meet, as with NCCL: the deadlock names both.
    """

    def __init__(self, baton: Baton, size: int, name: str = "group") -> None:
        self.size = size
        self.name = name
        self._baton = baton
        self._turn = [0] * size
        self._meetings: dict[tuple[int, str], _Meeting] = {}

    def barrier(self, rank: int, timeout_s: float | None = None) -> None:
        """Wait for all ranks."""
        self._meet(rank, "barrier", None, timeout_s)

    def all_gather(self, rank: int, value: Any, timeout_s: float | None = None) -> list[Any]:
        """Every rank's value, by rank, on every rank."""
        return self._meet(rank, "all_gather", value, timeout_s)

    def gather(self, rank: int, value: Any, dst: int = 0, timeout_s: float | None = None) -> list[Any] | None:
        """Every rank's value on `dst`, None elsewhere."""
        values = self._meet(rank, f"gather(dst={dst})", value, timeout_s)
        return values if rank == dst else None

    def broadcast(self, rank: int, value: Any = None, src: int = 0, timeout_s: float | None = None) -> Any:
        """The value of `src`, on every rank."""
        return self._meet(rank, f"broadcast(src={src})", value, timeout_s)[src]

    def scatter(self, rank: int, values: list[Any] | None = None, src: int = 0, timeout_s: float | None = None) -> Any:
        """Item `rank` of the list that `src` gives."""
        return self._meet(rank, f"scatter(src={src})", values, timeout_s)[src][rank]

    def _meet(self, rank: int, op: str, value: Any, timeout_s: float | None) -> list[Any]:
        if not 0 <= rank < self.size:
            raise ValueError(f"rank {rank} is not in group {self.name!r} of {self.size}")
        turn = self._turn[rank]
        self._turn[rank] = turn + 1
        key = (turn, op)
        meeting = self._meetings.setdefault(key, _Meeting())
        meeting.values[rank] = value
        until = None if timeout_s is None else self._baton.now + timeout_s
        what = f"{op} #{turn} of group {self.name!r} as rank {rank} of {self.size}"
        if not self._baton.block(lambda: len(meeting.values) == self.size, until, what):
            missing = sorted(set(range(self.size)) - set(meeting.values))
            raise MeetTimeout(f"{what}: ranks {missing} did not come within {timeout_s:g} s")
        meeting.left += 1
        if meeting.left == self.size:
            del self._meetings[key]
        return [meeting.values[r] for r in range(self.size)]
