"""NeMo-RL's generation side, whichever way weights go: `SGLangGeneration` with workers attached to the gated engines.

The classes are NeMo-RL's. Theirs is what they do; placement, router, ports and the launch of servers are ours.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common, peers

RAY = common.ray()
if "pybase64" not in sys.modules:
    try:
        import pybase64  # noqa: F401 - whether it is there
    except ImportError:
        sys.modules["pybase64"] = ModuleType("pybase64")
        sys.modules["pybase64"].__dict__.update(b64encode=base64.b64encode, b64decode=base64.b64decode)

import nemo_rl.models.policy  # noqa: E402 - after its stand-ins
from nemo_rl.models.generation.sglang import sglang_generation, sglang_worker  # noqa: E402 - after its stand-ins

BUCKET_BYTES = 128 * 1024
INTERFACE = "ColocatablePolicyInterface"
NO_PROCESS = 2**22 + 1
"""No process id: the engine is not this worker's child, so there is nothing that it could kill."""


class Driver:
    """One trainer rank; rank 0 holds the driver too. `worker` is what a policy worker does on this path."""

    worker: Any

    def __init__(self, about: dict[str, Any]) -> None:
        import torch.multiprocessing

        torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]  # torch's own, without types
        common.init_process_group(about)
        as_patched()
        self.driver: Any = None
        self.generation: Any = None

    def workers(self, about: dict[str, Any]) -> list[Any]:
        """On rank 0 a handle for the worker of every rank; elsewhere none, and this rank's worker is served."""
        if about["rank"]:
            peers.serve(about["folder"], about["rank"], self.worker)
            return []
        return [peers.Local(self.worker), *(peers.Peer(about["folder"], rank) for rank in range(1, about["ranks"]))]

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters, whole on every rank once they are exported."""
        self.worker.state = common.tensors(state)

    def refit(self) -> None:
        """The driver's refit; the other ranks do what it tells them."""
        if self.driver is not None:
            try:
                self.driver.sync_weights()
            finally:
                self.generation.needs_offload = False

    def phase(self, name: str) -> None:
        """The trainer takes the memory."""
        if self.driver is not None and name == "train":
            self.generation.needs_offload = True
            self.generation.finish_generation()

    def close(self) -> None:
        """End the driver."""
        if self.driver is not None:
            self.generation.shutdown()


def declared(policy: Any) -> Any:
    """The policy behind NeMo-RL's own interface for it."""
    source = Path(nemo_rl.models.policy.__path__[0]) / "interfaces.py"
    names = common.methods_of(source.read_text(encoding="utf-8"), INTERFACE) if source.is_file() else set()
    return common.Declared(policy, INTERFACE, names) if names else policy


def call_all(workers: list[Any], name: str, **kwargs: Any) -> list[Any]:
    """One call in every worker: references."""
    return [worker.call(name, **kwargs) for worker in workers]


def buckets(state: dict[str, Any], buffer_size_bytes: int) -> Iterator[list[tuple[str, Any]]]:
    """NeMo-RL's own cutting, over a bridge whose export takes a step of every rank for each tensor."""
    from nemo_rl.models.policy.workers.megatron_sglang_weight_iterator import MegatronSGLangHfWeightIterator

    bridge = SimpleNamespace(export_hf_weights=lambda models, **_: common.exported(state))
    iterator = MegatronSGLangHfWeightIterator(megatron_bridge=bridge, models=[], conversion_tasks=[])
    found: Iterator[list[tuple[str, Any]]] = iterator.iter_hf_weight_buckets(buffer_size_bytes=buffer_size_bytes)
    return found


def as_patched() -> None:
    """The engine takes NeMo-RL's own metadata class, as SGLang does once NeMo-RL has edited its list of classes."""
    import sglang.srt.weight_sync.tensor_bucket as theirs
    from nemo_rl.models.generation.sglang.utils import train_utils

    train_utils.FlattenedTensorMetadata.__module__ = theirs.__name__
    theirs.FlattenedTensorMetadata = train_utils.FlattenedTensorMetadata


def config_of(about: dict[str, Any]) -> dict[str, Any]:
    """Its configuration, for these engines."""
    total = sum(engine["tp"] for engine in about["engines"])
    watched = about["settings"].get("fault_tolerance", "") == "true"
    inner: dict[str, Any] = {
        "model_path": about["folder"],
        "tp_size": about["engines"][0]["tp"],
        "dp_size": 1,
        "pp_size": 1,
        "ep_size": 1,
        "random_seed": 0,
        "skip_server_warmup": True,
        "sglang_server_config": {
            "num_gpus_per_engine": about["engines"][0]["tp"],
            "num_gpus": total,
            "needs_offload": False,
            "cpu_weight_backup": False,
            "sglang_server_concurrency": 64,
            "pause_generation_mode": about["settings"].get("pause_mode", "retract"),
        },
        "sglang_router_config": {},
        "quantization": {"scheme": "bf16"},
        "use_fault_tolerance": watched,
        "rollout_health_check_interval": 5.0,
        "rollout_health_check_timeout": 5.0,
        "rollout_health_check_first_wait": 1.0,
    }
    return {"backend": "sglang", "sglang_cfg": inner, "stop_strings": None}


def engines_of(about: dict[str, Any]) -> list[Any]:
    """Handles to workers that are attached to the engines."""
    config, counts = config_of(about), [engine["tp"] for engine in about["engines"]]
    return [_worker(config, index, counts[index], engine) for index, engine in enumerate(about["engines"])]


def _worker(config: dict[str, Any], index: int, gpus: int, engine: dict[str, Any]) -> Any:
    kind = attached()
    held = kind(sum([gpus]), config, rank=index, base_gpu_id=index * gpus, num_gpus_per_engine=gpus)
    held.init(**_address(engine), router_ip=None, router_port=None)
    return common.Handle(held)


def _address(engine: dict[str, Any]) -> dict[str, Any]:
    host, port = common.host_port(engine["url"])
    return {"dist_init_addr": f"{host}:{port}", "port": port, "nccl_port": port, "host": host}


def attached() -> type:
    """NeMo-RL's worker class, which is given a running engine where it would launch one; its arguments are checked."""
    from sglang.srt.server_args import ServerArgs

    def attach(self: Any, server_args: dict[str, Any]) -> None:
        ServerArgs(**server_args)
        self.process = SimpleNamespace(pid=NO_PROCESS, is_alive=lambda: True)

    module: Any = sglang_worker
    module._apply_sglang_compat_patches = lambda: None  # they edit the files of an installed SGLang
    kind: type = module.SGLangGenerationWorker.local
    kind._launch_server_process = attach  # type: ignore[attr-defined]  # a class of the framework's
    if not getattr(kind, "over_gloo", False) and hasattr(kind, "init_weights_update_group"):
        common.joins_over_gloo(kind)
        kind.over_gloo = True  # type: ignore[attr-defined]  # a class of the framework's
    return kind


def generation_of(about: dict[str, Any], **more: Any) -> Any:
    """The real object, whose placement, router and ports are ours; `more` is configuration beside `config_of`."""
    attached()
    engines = about["engines"]
    total = sum(engine["tp"] for engine in engines)
    module: Any = sglang_generation
    module.get_reordered_bundle = lambda group: (list(range(total)), list(range(total)), None)
    module._start_router = lambda config: ("127.0.0.1", 9, None)
    module.make_actor_runtime_env = lambda name: {"env_vars": {}}
    module.get_nsight_config_if_pattern_matches = lambda name: {}
    addresses = {index: _address(engine) for index, engine in enumerate(engines)}

    def allocate(*, local_all_engines: Any, **_: Any) -> Any:
        return {rank: addresses[rank] for rank, _ in local_all_engines}, {}

    module._allocate_rollout_engine_addr_and_ports_normal = allocate
    cluster = SimpleNamespace(
        _init_placement_groups=lambda **_: ["group"], num_gpus_per_node=total, max_colocated_worker_groups=1
    )
    return module.SGLangGeneration(cluster, {**config_of(about), **more})
