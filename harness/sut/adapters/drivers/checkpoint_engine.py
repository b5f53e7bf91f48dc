"""checkpoint-engine: a `ParameterServer` in every trainer rank, which updates SGLang over `/update_weights_from_ipc`.

Registering, gathering, buckets, sockets and the protocol are its own. Given to it are the ranks' parts of a state and
the request that makes an engine listen, as SGLang's own script sends it (checkpoint_engine/update.py:48@0.5.23).
Replaced is what asks for a GPU: its device manager (gloo, ordinary memory) and the handle of the buffer, which lies in
the CPU's shared memory.
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common

import checkpoint_engine.ps as server  # isort: skip
from checkpoint_engine import pin_memory  # isort: skip

ROOM = 640 << 10
"""Bytes of a GPU that are said to be free: a state takes several buckets."""
TIMEOUT_S = 300.0
_serial = itertools.count()


class _Memory:
    """A handle to shared memory that plain pickle writes, as a handle to a GPU's memory is one."""

    def __init__(self, *reduced: Any) -> None:
        self._reduced = reduced

    def __reduce__(self) -> Any:
        return self._reduced


def _shared(buffer: Any) -> Any:
    """What torch's reduce_tensor gives, for a buffer of the CPU in the file_system strategy."""
    import torch
    from torch.multiprocessing import reductions

    manager, handle, size = buffer.untyped_storage()._share_filename_cpu_()
    storage = _Memory(reductions.rebuild_storage_filename, (torch.UntypedStorage, manager, handle, size))
    typed = _Memory(reductions.rebuild_typed_storage, (storage, torch.uint8))
    return reductions.rebuild_tensor, (torch.Tensor, typed, (0, buffer.size(), buffer.stride(), False))


class _Cpu:
    """Its device manager."""

    device_type, backend = "cpu", "gloo"

    def __init__(self) -> None:
        self.device_module = SimpleNamespace(
            device_count=lambda: 64,
            set_device=lambda index: None,
            synchronize=lambda: None,
            empty_cache=lambda: None,
            ipc_collect=lambda: None,
            memory_allocated=lambda: 0,
            memory_reserved=lambda: 0,
            mem_get_info=lambda: (ROOM, ROOM),
        )


def _without_gpu(uuids: list[str]) -> None:
    import torch

    made = torch.empty
    module: Any = server
    module.DeviceManager, module.reduce_tensor = _Cpu, _shared
    module._get_physical_gpu_id = lambda manager, index: uuids[index]
    module.get_ip = lambda: "127.0.0.1"
    pins: Any = pin_memory
    pins.torch.empty = lambda *size, pin_memory=False, **given: made(*size, **given)


class Rank:
    """One trainer rank, beside one rank of an engine."""

    def __init__(self, about: dict[str, Any]) -> None:
        from fakes.engine.ipc_update import device_uuid
        from harness.errors import Unsupported

        if len(about["engines"]) > 1:
            raise Unsupported("every engine of this lane counts its GPUs from 0: one engine")
        [self.engine] = about["engines"]
        self.rank, self.ranks = about["rank"], about["ranks"]
        _without_gpu([device_uuid(0, rank) for rank in range(self.engine["tp"])])
        port = _agreed(Path(about["folder"]) / "port", self.rank)
        self.server = server.ParameterServer(
            rank=self.rank, world_size=self.ranks, master_addr="127.0.0.1", master_port=port, mem_fraction=1.0
        )
        self.state: dict[str, Any] = {}
        self.version = ""

    def set_weights(self, state: Any, version: str) -> None:
        """This rank's part of the policy's parameters."""
        whole = common.tensors(state)
        self.state = {name: whole[name].contiguous() for name in list(whole)[self.rank :: self.ranks]}
        self.version = version

    def refit(self) -> None:
        """Register, gather, update; the checkpoint is given up afterwards."""
        name = f"refit-{next(_serial)}"
        self.server.register_checkpoint(name, named_tensors=self.state)
        try:
            self.server.gather_metas(name)
            self.server.update(name, self._ask)
        finally:
            self.server._memory_pool.pop(name, None)

    def _ask(self, socket_paths: list[tuple[str, str]]) -> None:
        import httpx

        if self.rank:
            return
        body = {"zmq_handles": dict(socket_paths), "flush_cache": True, "weight_version": self.version}
        httpx.post(f"{self.engine['url']}/update_weights_from_ipc", json=body, timeout=TIMEOUT_S).raise_for_status()

    def close(self) -> None:
        """Nothing of it outlives the process."""


def _agreed(file: Path, rank: int) -> int:
    """A port that rank 0 takes and the others read."""
    if rank == 0:
        port = common.free_port()
        new = file.with_suffix(".new")
        new.write_text(str(port))
        os.replace(new, file)
        return port
    while not file.exists():
        time.sleep(0.01)
    return int(file.read_text())
