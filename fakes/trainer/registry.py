"""Every CUDA-IPC handle of the simulated trainer: exported once, opened by whom, released, freed, reused.

The registry is also what an in-process engine opens handles with (`fakes.engine.payload.Resolver`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fakes.engine.tensors import CudaHandle, PayloadError
from fakes.trainer.memory import Block, DeviceMemory

Record = Callable[[str, int, Mapping[str, Any]], None]
Consumer = tuple[str, int]

_MAGIC = b"refitcheck-cuda-ipc:"
_HANDLE_BYTES = 64


def gpu_uuid(gpu: int) -> str:
    """The uuid of simulated GPU `gpu`, in the form that torch prints."""
    return f"{gpu:08x}-0000-4000-8000-{gpu:012x}"


@dataclass(eq=False)
class HandleRecord:
    """One exported handle. `consumers` are the (engine, tp_rank) pairs it is meant for; none means a probe's.

    state: live, released (the producer may free it), freed, reused (its memory holds something else now).
    """

    id: int
    rank: int
    block: Block
    consumers: tuple[Consumer, ...]
    recorded: bool = True
    opened: list[Consumer] = field(default_factory=list)
    released: bool = False
    state: str = "live"

    @property
    def handle(self) -> bytes:
        """The 64 opaque bytes that travel."""
        return (_MAGIC + str(self.id).encode()).ljust(_HANDLE_BYTES, b"\0")


class ExportRegistry:
    """All handles of one scenario. `record(name, rank, data)` gets export, open, release, free and reuse.

    `cuda(handle, rank)` opens for an engine of unknown name; `resolver(engine)` for a known one.
    """

    def __init__(self, record: Record | None = None) -> None:
        self.record = record
        self.handles: dict[int, HandleRecord] = {}
        self._memory: dict[int, DeviceMemory] = {}
        self._gone: set[int] = set()

    # Producer side.

    def allocate(self, rank: int, nbytes: int) -> Block:
        """Device memory of trainer rank `rank`; reusing memory whose handles were not released is recorded."""
        block, reused = self._memory.setdefault(rank, DeviceMemory(rank)).allocate(nbytes)
        former = [self.handles[export] for export in block.exports]
        block.exports = []
        if reused and former:
            for item in former:
                item.state = "reused"
            self._say(
                "reuse",
                rank,
                former[-1],
                block=block.id,
                exports=[item.id for item in former],
                unreleased=[item.id for item in former if not item.released],
                unopened=[item.id for item in former if not item.opened],
            )
        return block

    def plan(
        self, rank: int, blocks: Sequence[Block], consumers: Sequence[Consumer] = (), *, recorded: bool = True
    ) -> list[HandleRecord]:
        """New handles, one per block; `announce` them once their payload is written."""
        out = []
        for block in blocks:
            item = HandleRecord(len(self.handles) + 1, rank, block, tuple(consumers), recorded)
            self.handles[item.id] = item
            block.exports.append(item.id)
            out.append(item)
        return out

    def announce(self, item: HandleRecord, **facts: Any) -> None:
        """Record an export with what is known of its payload (names, sha256)."""
        consumers = [list(consumer) for consumer in item.consumers]
        self._say("export", item.rank, item, consumers=consumers, bytes=item.block.size, **facts)

    def release(self, item: HandleRecord) -> None:
        """The producer lets go of a handle. ValueError for a second release."""
        if item.released:
            raise ValueError(f"export {item.id} is released twice")
        item.released = True
        if item.state == "live":
            item.state = "released"
        self._say("release", item.rank, item, opened=len(item.opened))

    def free(self, rank: int, block: Block) -> None:
        """Give a block back: its bytes are poisoned at once."""
        items = [self.handles[export] for export in block.exports]
        self._memory[rank].free(block)
        for item in items:
            item.state = "freed"
        if items:
            self._say(
                "free",
                rank,
                items[-1],
                block=block.id,
                exports=[item.id for item in items],
                unreleased=[item.id for item in items if not item.released],
                unopened=[item.id for item in items if not item.opened],
            )

    def lose_rank(self, rank: int) -> None:
        """The process of a trainer rank is gone: its handles can no longer be opened."""
        self._gone.add(rank)

    def live(self) -> int:
        """Recorded handles that nobody has released."""
        return sum(1 for item in self.handles.values() if item.recorded and not item.released)

    # Consumer side.

    def resolver(
        self, engine: str, *, gpus: Sequence[int] | None = None, process: int | None = None
    ) -> RegistryResolver:
        """What the engine `engine` opens handles with. `gpus`: those it sees (all). `process`: the trainer rank in
        whose own process this happens, for code that opens what it exported itself.
        """
        return RegistryResolver(self, engine, None if gpus is None else frozenset(gpus), process)

    def bind(self, engine: str) -> RegistryResolver:
        """The same, for an engine that sees all GPUs."""
        return self.resolver(engine)

    def cuda(self, handle: CudaHandle, rank: int) -> np.ndarray:
        """Open for an engine of unknown name."""
        return self.resolver("").cuda(handle, rank)

    def shared(self, manager: bytes, handle: bytes, size: int) -> np.ndarray:
        """Torch's own shared memory: see `fakes.trainer.torch_wire`."""
        from fakes.trainer.torch_wire import TorchResolver

        return TorchResolver().shared(manager, handle, size)

    def torch_storage(self, data: bytes) -> tuple[np.ndarray, str | None]:
        """A storage written by torch.save: see `fakes.trainer.torch_wire`."""
        from fakes.trainer.torch_wire import TorchResolver

        return TorchResolver().torch_storage(data)

    def find(self, handle: bytes) -> HandleRecord | None:
        """The record behind 64 bytes, if they are one of ours."""
        text = handle.rstrip(b"\0")
        if not text.startswith(_MAGIC) or not text[len(_MAGIC) :].isdigit():
            return None
        return self.handles.get(int(text[len(_MAGIC) :]))

    def is_gone(self, rank: int) -> bool:
        """Whether the process of a trainer rank is gone."""
        return rank in self._gone

    def note_open(self, item: HandleRecord, engine: str, rank: int) -> None:
        """Account for one open."""
        item.opened.append((engine, rank))
        own = not item.consumers or any(c == (engine, rank) or (not engine and c[1] == rank) for c in item.consumers)
        self._say(
            "open", item.rank, item, engine=engine, tp_rank=rank, times=len(item.opened), own=own, state=item.state
        )

    def _say(self, name: str, rank: int, item: HandleRecord, **data: Any) -> None:
        if self.record is not None and item.recorded:
            self.record(name, rank, {"export": item.id, "gpu": item.block.gpu, **data})


@dataclass(frozen=True)
class RegistryResolver:
    """`fakes.engine.payload.Resolver` of one engine over a registry."""

    registry: ExportRegistry
    engine: str
    gpus: frozenset[int] | None = None
    process: int | None = None

    def cuda(self, handle: CudaHandle, rank: int) -> np.ndarray:
        """The bytes behind a handle, as they are now.

        PayloadError: "Invalid device_uuid=" for a GPU the engine does not see (utils/patch_torch.py:103 @0.5.23),
        CUDA's own errors for a handle of a process that is gone and for an open by the exporting process itself.
        """
        item = self.registry.find(handle.handle)
        known = {gpu_uuid(gpu): gpu for gpu in (self.gpus if self.gpus is not None else _all_gpus(self.registry))}
        if isinstance(handle.device, str) and handle.device not in known:
            raise PayloadError("Exception", f"Invalid device_uuid={handle.device}")
        if item is None or self.registry.is_gone(item.rank):
            raise PayloadError("torch.AcceleratorError", "CUDA error: invalid resource handle")
        if self.process is not None and self.process == item.rank:
            raise PayloadError("torch.AcceleratorError", "CUDA error: invalid device context")
        data = item.block.data
        if handle.offset + handle.size > data.nbytes:
            raise PayloadError("torch.AcceleratorError", "CUDA error: invalid argument")
        self.registry.note_open(item, self.engine, rank)
        return data[handle.offset : handle.offset + handle.size]

    def shared(self, manager: bytes, handle: bytes, size: int) -> np.ndarray:
        """Torch's own shared memory."""
        return self.registry.shared(manager, handle, size)

    def torch_storage(self, data: bytes) -> tuple[np.ndarray, str | None]:
        """A storage written by torch.save."""
        return self.registry.torch_storage(data)


def _all_gpus(registry: ExportRegistry) -> set[int]:
    return {item.block.gpu for item in registry.handles.values()}
