"""Payloads over real CUDA IPC: torch tensors on a GPU of this machine, which another process opens by handle.

What travels is what torch's reductions write once SGLang has patched them (utils/patch_torch.py:41-86 @0.5.23): the
arguments of `rebuild_cuda_tensor` with the GPU's uuid in place of its index, so that producer and engine may see the
GPUs under different numbers. SGLang is not imported. A payload dies with `close()` and with its producer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fakes.trainer.pickling import Global, Reduce
from fakes.trainer.torch_wire import Share, Shared, contiguous

_REBUILD = Global("sglang.srt.utils.patch_torch", "_rebuild_cuda_tensor_modified")


class CudaStorage:
    """A contiguous torch tensor on GPU `device` (as this process numbers them), whose whole storage is shared.

    Its owner keeps it until the engine has answered.
    """

    def __init__(self, data: Any, device: int) -> None:
        torch = _torch()
        self._data: Any = data
        shared = self._data.untyped_storage()._share_cuda_()
        _, self._handle, self._size, self._offset, self._counter, self._counter_at, self._event, self._sync = shared
        self._uuid = str(torch.cuda.get_device_properties(device).uuid)

    def tensor(self, dtype: str, shape: tuple[int, ...]) -> Reduce:
        """The call that rebuilds it in the engine (torch/multiprocessing/reductions.py, rebuild_cuda_tensor @2.11)."""
        return Reduce(
            _REBUILD,
            (
                Global("torch", "Tensor"),
                Reduce(Global("torch", "Size"), (tuple(shape),)),
                contiguous(shape),
                0,
                Global("torch.storage", "TypedStorage"),
                Global("torch", dtype),
                self._uuid,
                self._handle,
                self._size,
                self._offset,
                False,
                self._counter,
                self._counter_at,
                self._event,
                self._sync,
            ),
        )

    def close(self) -> None:
        """Free it. Memory of a payload that nobody opened stays with torch until the process ends."""
        if self._data is not None:
            self._data = None
            _torch().cuda.ipc_collect()


def cuda_share(device: int) -> Share:
    """Puts bytes (uint8) on GPU `device`; RuntimeError of torch's where there is none."""

    def share(data: np.ndarray) -> Shared:
        # The copy from pageable memory is complete when `to` returns, so no engine can open what is half written.
        return CudaStorage(_torch().from_numpy(np.array(data, dtype=np.uint8)).to(f"cuda:{device}"), device)

    return share


def gpu_of(rank: int) -> int:
    """The GPU, as this process numbers them, of trainer rank or tp_rank `rank`: they share what GPUs there are."""
    return rank % max(1, int(_torch().cuda.device_count()))


def _torch() -> Any:
    import torch

    return torch
