"""AReaL's broadcast path: `FSDPEngine._update_weights_from_distributed`, over `RemoteInfEngine` and its SGLang backend.

Pausing, the group, requests, retries, pipelining and broadcasts are AReaL's. Given to it are the parameters, whole,
and an executor of threads for its pool of processes; the platform is its own one for CPUs, whose backend is gloo.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import areal, common

from areal.api import io_struct  # isort: skip  # after the stand-ins that areal's driver installs
from areal.engine import fsdp_engine, sglang_remote  # isort: skip
from areal.infra import remote_inf_engine  # isort: skip
from areal.infra.platforms import cpu  # isort: skip

BUCKET_MB = 0.125


class Rank:
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        import torch.distributed as dist

        common.init_process_group(about)
        module: Any = fsdp_engine
        module.current_platform = sglang_remote.current_platform = cpu.CpuPlatform()
        remote_inf_engine.current_platform = module.current_platform
        module.current_platform.synchronize = lambda: None
        module.gethostip = lambda: "127.0.0.1"
        self.state: dict[str, Any] = {}
        tp = about["engines"][0]["tp"]
        size = sum(engine["tp"] for engine in about["engines"])
        parallel = SimpleNamespace(tp_size=tp, pp_size=1, dp_size=size // tp, world_size=size)
        self.meta = io_struct.WeightUpdateMeta(
            type="xccl", gen_allocation=SimpleNamespace(parallel=parallel), weight_chunked_mem_mb=BUCKET_MB
        )
        self.engine = object.__new__(module.FSDPEngine)
        self.engine.__dict__.update(
            rollout_engine=areal.inference_engine(about),
            config=SimpleNamespace(use_lora=False),
            weight_update_groups=[],
            weight_update_group_names=[],
            _cpu_group=dist.new_group(backend="gloo"),
            _initialized=True,
            logger=SimpleNamespace(info=print, error=print, warning=print),
            _get_model_name_parameters=lambda meta: common.exported(self.state),
            _cast_to_compute_dtype=lambda tensor: tensor,
        )
        self.engine._init_weight_update_from_distributed(self.meta)

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters."""
        self.state = common.tensors(state)

    def refit(self) -> None:
        """Pause, buckets, continue."""
        self.engine._update_weights_from_distributed(self.meta)

    def close(self) -> None:
        """Nothing of it outlives the process."""
