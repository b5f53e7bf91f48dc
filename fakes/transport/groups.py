"""The trainer's way into a weight-update group, whatever it is made of: open an address, join as rank 0, broadcast.

`WorldGroups` is the one in virtual time. `fakes.transport.gloo` has the same over real gloo.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fakes.engine.protocol import Raised
from fakes.transport.collective import Collectives, Joiner
from fakes.transport.mesh import Mesh, Sent, describe

if TYPE_CHECKING:
    import numpy as np

    from fakes.world import World

CUMEM = "NCCL_CUMEM_ENABLE"
HANG_S = 1.0
"""Virtual seconds after which a wait that has no deadline of its own is called a hang."""

HOST = "127.0.0.1"
Record = Callable[[str, int, Mapping[str, Any]], None]
Until = Callable[[], bool]


class GroupError(RuntimeError):
    """The group could not be made, or a broadcast in it failed: torch's own words."""


class GroupTimeout(TimeoutError):
    """Somebody did not come. `ranks` are those that were waited for."""

    def __init__(self, message: str, ranks: Sequence[int]) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class Hang(GroupTimeout):
    """A wait without a deadline that would never have ended."""


class UpdateGroup(Protocol):
    """One group, seen by its rank 0."""

    name: str
    address: str
    port: int
    world_size: int
    backend: str

    def join(self, timeout_s: float | None = None, *, unless: Until = ...) -> bool:
        """Wait until every rank is there; False when `unless()` came true first. GroupTimeout, GroupError."""
        ...

    def broadcast(self, array: np.ndarray) -> Any:
        """Post one broadcast from rank 0 and go on; its memory belongs to the group until it was waited for.
        ValueError or GroupError for what is refused at once."""
        ...

    def wait(self, sent: Iterable[Any], timeout_s: float | None = None, *, unless: Until = ...) -> bool:
        """Wait for these broadcasts; False when `unless()` came true first. GroupTimeout, GroupError."""
        ...

    def close(self) -> None:
        """Abort and destroy this side: whoever waits for it hears of it. A second call does nothing."""
        ...


class Groups(Protocol):
    """What a trainer makes its groups with."""

    backend: str
    default: DefaultGroup | Any
    env: MutableMapping[str, str]

    def open(self, name: str, world_size: int, backend: str | None = None) -> UpdateGroup:
        """A store at a free port of this machine, and rank 0 of the group that will meet there."""
        ...

    def live(self) -> int:
        """Groups that were opened and not closed."""
        ...

    def close(self) -> None:
        """Close what is left open."""
        ...


def never() -> bool:
    """Nothing else ends a wait."""
    return False


class DefaultGroup:
    """The trainer's own default process group. `bound_device_id` is set where torch made it eagerly: then a new NCCL
    group is split from it, which all its ranks must take part in (distributed_c10d.py:2040@torch 2.13)."""

    def __init__(self, ranks: int, bound_device_id: str | None = None) -> None:
        self.ranks = ranks
        self.bound_device_id = bound_device_id


class WorldGroups:
    """`Groups` between the participants of a world and its engines.

    record(name, rank, data) gets what happens. `backend` gloo or nccl; `env` is the trainer's environment: what NCCL
    reads in it is read once, when the first group is joined.
    """

    def __init__(
        self,
        world: World,
        record: Record,
        *,
        ranks: int = 1,
        backend: str = "gloo",
        hang_s: float = HANG_S,
        env: MutableMapping[str, str] | None = None,
    ) -> None:
        transport = world.transport
        if not isinstance(transport, Collectives):
            raise TypeError(f"this world's transport is {type(transport).__name__}: nobody can join its groups")
        self.backend = backend
        self.default = DefaultGroup(ranks, "cuda:0" if backend == "nccl" else None)
        self.env: MutableMapping[str, str] = {} if env is None else env
        self.hang_s = hang_s
        self.cumem: str | None = None
        self.record = record
        self.world = world
        self.collectives = transport
        self._open: set[WorldGroup] = set()

    def open(self, name: str, world_size: int, backend: str | None = None) -> WorldGroup:
        """See `Groups`."""
        group = WorldGroup(self, name, world_size, backend or self.backend, self.collectives.free_port())
        self._open.add(group)
        about = {"group": name, "world_size": world_size, "backend": group.backend, "port": group.port}
        self.record("group_open", 0, {**about, "live": len(self._open)})
        return group

    def live(self) -> int:
        """Groups that were opened and not closed."""
        return len(self._open)

    def close(self) -> None:
        """Close what is left open."""
        for group in list(self._open):
            group.close()

    def first_group(self, backend: str) -> str:
        """The NCCL_CUMEM_ENABLE that NCCL goes by from its first communicator on; "" where it was not set."""
        if backend != "nccl":
            return self.env.get(CUMEM, "")
        if self.cumem is None:
            self.cumem = self.env.get(CUMEM, "")
        return self.cumem

    def forget(self, group: WorldGroup) -> None:
        """It is closed."""
        self._open.discard(group)


class WorldGroup:
    """`UpdateGroup` in virtual time."""

    address = HOST

    def __init__(self, groups: WorldGroups, name: str, world_size: int, backend: str, port: int) -> None:
        self.name = name
        self.world_size = world_size
        self.backend = backend
        self.port = port
        self._groups = groups
        self._mesh: Mesh | None = None
        self._joiner: Joiner | None = None
        self._closed = False
        groups.collectives.listen((self.address, port))

    def join(self, timeout_s: float | None = None, *, unless: Until = never) -> bool:
        """See `UpdateGroup`. Under a bound default group it is a split, for which rank 0 is not enough."""
        groups = self._groups
        cumem = groups.first_group(self.backend)
        split = self.backend == "nccl" and groups.default.bound_device_id is not None
        outcome: list[Mesh | Raised] = []
        self._joiner = Joiner(
            (self.address, self.port), self.name, 0, self.world_size, self.backend, outcome.append, cumem
        )
        about = {"group": self.name, "world_size": self.world_size, "backend": self.backend}
        groups.record("group_join", 0, {**about, "cumem": cumem, "split": split})
        if not split:
            groups.collectives.enter(self._joiner)

        def missing() -> str:
            if split:
                others = describe(range(1, max(2, groups.default.ranks)))
                return f"trainer {others} (it would be split from the default group, which is bound to a device)"
            return describe(groups.collectives.missing(self._joiner))  # type: ignore[arg-type]  # entered: there is one

        if not self._wait(lambda: bool(outcome), timeout_s, unless, "did not join", missing):
            return False
        if isinstance(outcome[0], Raised):
            raise GroupError(outcome[0].message)
        self._mesh = outcome[0]
        groups.record("group_joined", 0, about)
        return True

    def broadcast(self, array: np.ndarray) -> Sent:
        """See `UpdateGroup`."""
        if self._mesh is None:
            raise GroupError(f"group {self.name!r} has not been joined")
        sent = self._mesh.send(array)
        about = {"group": self.name, "number": sent.number, "bytes": array.nbytes, "dtype": str(array.dtype)}
        whole = bool(array.flags.c_contiguous)
        self._groups.record("broadcast", 0, {**about, "shape": list(array.shape), "contiguous": whole})
        return sent

    def wait(self, sent: Iterable[Sent], timeout_s: float | None = None, *, unless: Until = never) -> bool:
        """See `UpdateGroup`."""
        mesh, listed = self._mesh, list(sent)
        if mesh is None:
            raise GroupError(f"group {self.name!r} has not been joined")

        def over() -> bool:
            return all(s.done for s in listed) or any(s.error is not None for s in listed)

        def missing() -> str:
            return describe(sorted({rank for s in listed for rank in mesh.waited_for(s)}))

        going = self._wait(over, timeout_s, unless, "took no broadcast", missing)
        for s in listed:
            if s.done:
                s.settle()
            if s.dropped:
                self._groups.record("buffer_dropped", 0, {"group": self.name, "number": s.number})
        if not going:
            return False
        error = next((s.error for s in listed if s.error is not None), None)
        if error is not None:
            raise GroupError(error.message)
        self._groups.record("broadcasts_waited", 0, {"group": self.name, "numbers": [s.number for s in listed]})
        return True

    def close(self) -> None:
        """See `UpdateGroup`."""
        if self._closed:
            return
        self._closed = True
        self._groups.forget(self)
        if self._joiner is not None:
            self._groups.collectives.withdraw(self._joiner)
        self._groups.collectives.unlisten((self.address, self.port))
        if self._mesh is not None:
            self._mesh.leave(0)
        self._groups.record("group_closed", 0, {"group": self.name, "live": self._groups.live()})

    def _wait(
        self, over: Until, timeout_s: float | None, unless: Until, failed: str, missing: Callable[[], str]
    ) -> bool:
        """True when it is over, False when something else ended the wait; GroupTimeout with who was waited for."""
        world, limit = self._groups.world, self._groups.hang_s if timeout_s is None else timeout_s
        what = f"group {self.name!r} of {self.world_size}"
        if world.block(lambda: over() or unless(), world.now + limit, what):
            return over()
        who = missing()
        text = f"group {self.name!r}: {who} {failed} within {limit:g} s"
        ranks = [int(word) for word in who.replace(",", " ").split() if word.isdigit()]
        if timeout_s is None:
            self._groups.record("hang", 0, {"group": self.name, "waited_for": who, "after_s": limit})
            raise Hang(f"{text}, and nothing would have ended the wait", ranks)
        raise GroupTimeout(text, ranks)


def environment() -> MutableMapping[str, str]:
    """The process's own."""
    return os.environ
