"""Weight-update groups in virtual time: engine ranks and the trainer meet at an address and become a group.

As torch does it (torch/distributed/rendezvous.py, distributed_c10d.py @2.13): the group's rank 0 has the store,
everybody else connects to it and retries until its own time is over; then each waits for every other rank of the world
size that it was told. So a wrong world size, a rank that comes twice and one that never comes look alike: somebody
waits.

Everything runs under a world's baton: a callback is called at once or through the engine's `later`, never by a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fakes.engine.protocol import Done, Join, Leave, Raised, Recv
from fakes.transport.mesh import Mesh
from fakes.transport.peers import RENDEZVOUS_S, Later, Process
from fakes.transport.received import named_of, sizes_of

FIRST_PORT = 29500
LOST_STORE = Raised(
    "DistNetworkError",
    "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
)
UNHANDLED = Raised(
    "DistBackendError",
    "NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details). ncclUnhandledCudaError: Call to CUDA "
    "function failed.",
)
ENGINE_CUMEM = "0"
"""NCCL_CUMEM_ENABLE of an engine without --enable-symm-mem (entrypoints/engine.py@0.5.23, _set_envs_and_config)."""

Address = tuple[str, int]
Entered = Callable[["Mesh | Raised"], None]


@dataclass(eq=False)
class Joiner:
    """Somebody who waits for a group to form. `cumem`: the NCCL_CUMEM_ENABLE that its NCCL goes by."""

    address: Address
    name: str
    rank: int
    world_size: int
    backend: str
    entered: Entered
    cumem: str = ENGINE_CUMEM
    process: Process | None = None


class Collectives:
    """`Transport` of a world, and the way in for whoever plays the trainer there."""

    def __init__(self, timeout_s: float = RENDEZVOUS_S) -> None:
        self.timeout_s = timeout_s
        self._stores: set[Address] = set()
        self._knocking: list[tuple[Address, Process, Callable[[], None]]] = []
        self._waiting: list[Joiner] = []
        self._meshes: dict[tuple[Process, int, str], tuple[Mesh, int]] = {}
        self._ports = FIRST_PORT

    # -- stores ---------------------------------------------------------------------------------------------------

    def free_port(self) -> int:
        """A port that nobody listens at."""
        self._ports += 1
        return self._ports - 1

    def listen(self, address: Address) -> None:
        """Rank 0 opens the store: who has been knocking comes in."""
        self._stores.add(address)
        come = [action for at, _, action in self._knocking if at == address]
        self._knocking = [knock for knock in self._knocking if knock[0] != address]
        for action in come:
            action()

    def unlisten(self, address: Address) -> None:
        """The store is gone: who still waited there hears of it."""
        if address not in self._stores:
            return
        self._stores.discard(address)
        left = [joiner for joiner in self._waiting if joiner.address == address]
        self._waiting = [joiner for joiner in self._waiting if joiner.address != address]
        for joiner in left:
            joiner.entered(LOST_STORE)

    # -- forming a group ------------------------------------------------------------------------------------------

    def enter(self, joiner: Joiner) -> None:
        """Wait for the others; `joiner.entered` is told when the group is there."""
        self._waiting.append(joiner)
        self._form(joiner)

    def withdraw(self, joiner: Joiner) -> None:
        """It does not wait any more."""
        if joiner in self._waiting:
            self._waiting.remove(joiner)

    def missing(self, joiner: Joiner) -> list[int]:
        """The ranks that have not come, as this one sees it."""
        here = {other.rank for other in self._waiting if _meets(joiner, other)}
        return [rank for rank in range(joiner.world_size) if rank not in here]

    def _form(self, last: Joiner) -> None:
        ranks: dict[int, Joiner] = {}
        for other in self._waiting:
            if _meets(last, other):
                ranks.setdefault(other.rank, other)
        if set(ranks) != set(range(last.world_size)):
            return
        members = [ranks[rank] for rank in range(last.world_size)]
        self._waiting = [other for other in self._waiting if other not in members]
        outcome: Mesh | Raised = Mesh(last.name, last.backend, last.world_size, last.address[1])
        if last.backend == "nccl" and len({member.cumem for member in members}) > 1:
            outcome = UNHANDLED
        for member in members:
            member.entered(outcome)

    # -- what engines do ------------------------------------------------------------------------------------------

    def join(self, process: Process, effect: Join, finish: Callable[[Done], None], later: Later) -> None:
        """One scheduler rank joins. It gives up after torch's timeout, and says what it was waiting for."""
        address = (effect.master_address, effect.master_port)
        over = False
        joiner: Joiner | None = None

        def end(error: Raised | None) -> None:
            nonlocal over
            if not over:
                over = True
                later(0.0, lambda: finish(Done(effect.id, error=error)))

        def entered(outcome: Mesh | Raised) -> None:
            if isinstance(outcome, Mesh):
                self._meshes[process, effect.rank, effect.group_name] = (outcome, effect.group_rank)
            end(outcome if isinstance(outcome, Raised) else None)

        def connected() -> None:
            nonlocal joiner
            if over:
                return
            if effect.store_only:
                end(None)
                return
            joiner = Joiner(
                address,
                effect.group_name,
                effect.group_rank,
                effect.world_size,
                effect.backend,
                entered,
                process=process,
            )
            self.enter(joiner)

        def give_up() -> None:
            if over:
                return
            ms = round(self.timeout_s * 1000)
            if joiner is None:
                where = f"({address[0]}, {address[1]})"
                text = f"The client socket has timed out after {ms}ms while trying to connect to {where}."
                end(Raised("DistNetworkError", text))
                return
            first = self.missing(joiner)[0] if self.missing(joiner) else joiner.rank
            self.withdraw(joiner)
            name = effect.group_name
            end(Raised("DistStoreError", f"wait timeout after {ms}ms, keys: /{name}/{name}//cpu//0/{first}"))

        later(self.timeout_s, give_up)
        if effect.group_rank == 0:
            self.listen(address)
        if address in self._stores:
            connected()
        else:
            self._knocking.append((address, process, connected))

    def recv(self, process: Process, effect: Recv, finish: Callable[[Done], None], later: Later) -> None:
        """One scheduler rank takes part in the broadcasts of its group."""
        found = self._meshes.get((process, effect.rank, effect.group_name))
        if found is None:
            text = f"Group {effect.group_name} has no member {process[0]} rank {effect.rank}"
            later(0.0, lambda: finish(Done(effect.id, error=Raised("RuntimeError", text))))
            return
        mesh, rank = found
        over = False

        def end(outcome: list[np.ndarray] | Raised) -> None:
            nonlocal over
            if over:
                return
            over = True
            named = outcome if isinstance(outcome, Raised) else named_of(effect, outcome)
            done = Done(effect.id, error=named) if isinstance(named, Raised) else Done(effect.id, value=named)
            later(0.0, lambda: finish(done))

        def give_up() -> None:
            text = (
                "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting "
                f"{round(self.timeout_s * 1000)}ms for recv operation to complete"
            )
            end(Raised("RuntimeError", text))

        if rank == 0:  # the source of its own broadcasts: of what its new, unwritten tensors hold
            unwritten = [np.zeros(size, np.uint8) for size in sizes_of(effect)]
            for buffer in unwritten:
                mesh.send(buffer)
            end(unwritten)
            return
        later(self.timeout_s, give_up)
        mesh.receive(rank, sizes_of(effect), end)

    def leave(self, process: Process, effect: Leave) -> None:
        """One scheduler rank destroyed its side of a group."""
        found = self._meshes.pop((process, effect.rank, effect.group_name), None)
        if found is not None:
            found[0].leave(found[1])

    def left(self, engine: str, incarnation: int) -> None:
        """The process of this engine is gone: its peers hear of it."""
        process = (engine, incarnation)
        self._knocking = [knock for knock in self._knocking if knock[1] != process]
        self._waiting = [joiner for joiner in self._waiting if joiner.process != process]
        mine = [key for key in self._meshes if key[0] == process]
        for key in mine:
            mesh, rank = self._meshes.pop(key)
            mesh.leave(rank)


def _meets(one: Joiner, other: Joiner) -> bool:
    same = one.address == other.address and one.name == other.name and one.backend == other.backend
    return same and one.world_size == other.world_size
