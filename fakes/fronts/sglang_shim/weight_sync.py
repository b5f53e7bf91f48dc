"""`sglang.srt.weight_sync.utils`: what trainers call to push a batch of tensors from all ranks of an engine."""

from __future__ import annotations

import importlib
from typing import Any


async def update_weights(
    engine: Any, params_batch: list[tuple[str, Any]], device_mesh_key: str, device_mesh: Any, load_format: Any = None
) -> Any:
    """Every rank serialises its tensors, rank 0 gathers them and calls the engine, once for the whole batch.

    The payload of every tp_rank is the same list, whose values hold one handle per rank; no session is opened
    (weight_sync/utils.py:14@0.5.20; the caller must hold one from 0.5.21 on, :26@0.5.23). Returns the engine's answer
    on rank 0 of the mesh, else None.
    """
    import torch.distributed as dist

    from fakes.fronts.sglang_shim.serializer import MultiprocessingSerializer as Serializer

    mesh = device_mesh[device_mesh_key]
    ranks, rank = mesh.mesh.size()[0], mesh.get_local_rank()
    mine = [(name, Serializer.serialize(whole(tensor.detach()))) for name, tensor in params_batch]
    gathered: list[Any] | None = [None] * ranks if rank == 0 else None
    dist.gather_object(mine, gathered, dst=mesh.mesh.tolist()[0], group=mesh.get_group())
    if gathered is None:
        return None
    local, request = _classes()
    named = [(parts[0][0], local([data for _, data in parts])) for parts in zip(*gathered, strict=True)]
    payloads = [Serializer.serialize(named) for _ in range(ranks)]
    return await engine.update_weights_from_tensor(request(serialized_named_tensors=payloads, load_format=load_format))


def whole(tensor: Any) -> Any:
    """The full tensor of a DTensor, else the tensor."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _classes() -> tuple[Any, Any]:
    request = importlib.import_module("sglang.srt.managers.io_struct").UpdateWeightsFromTensorReqInput
    try:
        home = importlib.import_module("sglang.srt.model_executor.model_runner_components.weight_updater")
    except ModuleNotFoundError:  # 0.5.12
        home = importlib.import_module("sglang.srt.model_executor.model_runner")
    return home.LocalSerializedTensor, request
