"""verl's colocated path: `ActorRolloutRefWorker.update_weights` in every trainer rank, with its SGLang `ServerAdapter`.

The worker, the rollout and its HTTP client are verl's own. Given to them are: a policy that yields the state, a mesh of
the ranks of one engine over gloo, and the configuration of a sync run with `free_cache_engine` where memory was
released.
"""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common

RAY = common.ray()

import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from verl.workers import engine_workers  # noqa: E402
from verl.workers.rollout.sglang_rollout import sglang_rollout  # noqa: E402

BUCKET_MB = 1


class _Config(SimpleNamespace):
    """Attributes, and `get` as an OmegaConf node has it."""

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return getattr(self, name, default)


class _Policy:
    """The training engine, of which update_weights asks its parameters."""

    is_param_offload_enabled = False

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def get_per_tensor_param(self, **_: Any) -> tuple[Any, None]:
        """(name, tensor) one by one, and no LoRA."""
        return ((name, value) for name, value in self.state.items()), None


class _Server:
    """The server actor, as far as trainers ask it."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def get_server_address(self) -> tuple[str, int]:
        """Of the gated engine."""
        return common.host_port(self.url)

    async def set_global_steps(self, steps: int) -> None:
        """A label for metrics."""


def _without_gpu() -> None:
    """Only what asks a device for memory: tensors stay in the CPU's shared memory instead of CUDA IPC."""
    sglang_rollout._to_ipc_device = lambda tensor: tensor
    device = SimpleNamespace(empty_cache=lambda: None, synchronize=lambda: None)
    engine_workers.get_torch_device = lambda: device
    engine_workers.log_gpu_memory_usage = lambda *args, **kwargs: None
    engine_workers.set_expandable_segments = lambda enable: None


class Rank:
    """One trainer rank; consecutive ranks belong to one engine."""

    def __init__(self, about: dict[str, Any]) -> None:
        engines = about["engines"]
        tp = engines[0]["tp"]
        rank, number = about["rank"], about["rank"] // tp
        os.environ.update({"RAY_LOCAL_WORLD_SIZE": str(about["ranks"]), "RANK": str(rank)})
        common.init_process_group(about)
        mesh = init_device_mesh("cpu", (about["ranks"] // tp, tp, 1), mesh_dim_names=("dp", "infer_tp", "infer_pp"))
        server = common.Handle(_Server(engines[number]["url"]))
        RAY.get_actor = lambda name: server  # type: ignore[attr-defined]
        _without_gpu()
        self.config = _Config(
            name="sglang",
            tensor_model_parallel_size=tp,
            data_parallel_size=1,
            pipeline_model_parallel_size=1,
            free_cache_engine=False,
            checkpoint_engine=SimpleNamespace(update_weights_bucket_megabytes=BUCKET_MB, backend="naive"),
        )
        model = _Config(
            local_path=about["folder"], trust_remote_code=False, hf_config=SimpleNamespace(), lora_rank=0, lora={}
        )
        self.policy = _Policy()
        rollout = sglang_rollout.ServerAdapter(self.config, model, mesh)
        self.worker = SimpleNamespace(
            config=SimpleNamespace(rollout=self.config),
            rollout=rollout,
            actor=SimpleNamespace(engine=self.policy),
            layered_summon=False,
            peft_merge=False,
            base_sync_done=True,
        )
        self.steps = 0

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters."""
        self.policy.state = common.tensors(state)

    def refit(self) -> None:
        """One sync of a step; memory is resumed if it was released since the last."""
        self.steps += 1
        update = engine_workers.ActorRolloutRefWorker.update_weights
        try:
            asyncio.run(getattr(update, "__wrapped__", update)(self.worker, global_steps=self.steps, mode="naive"))
        finally:
            self.config.free_cache_engine = False

    def phase(self, name: str) -> None:
        """The trainer takes the memory: verl's sleep of a sync step."""
        if name == "train":
            self.config.free_cache_engine = True
            asyncio.run(self.worker.rollout.release())

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group()
