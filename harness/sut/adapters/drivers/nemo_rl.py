"""NeMo-RL with colocated SGLang engines: its synchronizer, its generation object with workers, its IPC sender.

Rank 0 holds the driver too: `SGLangColocatedWeightSynchronizer` over `SGLangGeneration`, whose workers are attached to
the gated engines instead of launching some. Every rank holds what a policy worker does on this path: connect the
gather groups, cut the state into buckets, send them. `fault_tolerance=true` turns its health monitor on, where it has
one.
"""

from __future__ import annotations

import base64
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common, peers

RAY = common.ray()
if "pybase64" not in sys.modules:
    try:
        import pybase64  # noqa: F401
    except ImportError:
        sys.modules["pybase64"] = ModuleType("pybase64")
        sys.modules["pybase64"].__dict__.update(b64encode=base64.b64encode, b64decode=base64.b64decode)

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from nemo_rl.models.generation.sglang import sglang_generation, sglang_worker  # noqa: E402
from nemo_rl.models.policy import utils as policy_utils  # noqa: E402
from nemo_rl.weight_sync import sglang_weight_synchronizer  # noqa: E402

BUCKET_BYTES = 128 * 1024
NO_PROCESS = 2**22 + 1
"""No process id: the engine is not this worker's child, so there is nothing that it could kill."""


class Worker:
    """What a policy worker does in this path (nemo_rl/models/policy/workers/dtensor_policy_worker_v2.py:1132)."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.state: dict[str, Any] = {}
        self.ipc: dict[str, Any] = {}
        self.engines = _engines(about)

    def connect(self, engine_gpu_counts: list[int], engine_gpu_offsets: list[int] | None) -> None:
        """Collective: the gather groups."""
        policy_utils.connect_colocate_topology(
            engine_gpu_counts=engine_gpu_counts, engine_gpu_offsets=engine_gpu_offsets, worker_state=self.ipc
        )

    def update(self, buffer_size_bytes: int) -> None:
        """Collective: all buckets."""
        import torch

        with torch.no_grad():
            policy_utils.send_hf_buckets_via_ipc_actor_impl(
                bucket_iterator=policy_utils.iter_named_tensor_buckets(
                    iter(self.state.items()), buffer_size_bytes=buffer_size_bytes
                ),
                rollout_engines=self.engines,
                worker_state=self.ipc,
            )


class Policy:
    """The policy facade of the driver, as far as the synchronizer asks it."""

    def __init__(self, workers: list[Any]) -> None:
        self.cfg = {"megatron_cfg": {"enabled": False}}
        self._workers = workers

    def prepare_refit_info(self) -> None:
        """Nothing that the colocated path reads."""

    def offload_before_refit(self) -> None:
        """No GPU."""

    def offload_after_refit(self) -> None:
        """No GPU."""

    def connect_sglang_rollout_engines(self, *, engine_gpu_counts: Any, engine_gpu_offsets: Any = None) -> None:
        """In every worker."""
        RAY.get(  # type: ignore[attr-defined]
            [
                worker.call("connect", engine_gpu_counts=engine_gpu_counts, engine_gpu_offsets=engine_gpu_offsets)
                for worker in self._workers
            ]
        )

    def update_weights_to_sglang_colocated(self, *, buffer_size_bytes: int, **_: Any) -> list[Any]:
        """In every worker: references."""
        return [worker.call("update", buffer_size_bytes=buffer_size_bytes) for worker in self._workers]


class Rank:
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]  # torch's own, without types
        common.init_process_group(about)
        _as_patched()
        self.worker = Worker(about)
        self.driver: Any = None
        if about["rank"]:
            peers.serve(about["folder"], about["rank"], self.worker)
            return
        others = [peers.Peer(about["folder"], rank) for rank in range(1, about["ranks"])]
        self.generation = _generation(about)
        policy = Policy([peers.Local(self.worker), *others])
        self.driver = sglang_weight_synchronizer.SGLangColocatedWeightSynchronizer(
            policy, self.generation, BUCKET_BYTES / 1024**3
        )
        self.driver.init_communicator()

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters, whole on every rank, as DTensor.full_tensor gives them."""
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
            threading.excepthook = lambda *_: None
            self.generation.shutdown()


def _as_patched() -> None:
    """The engine takes NeMo-RL's own metadata class, as SGLang does once NeMo-RL has edited its list of classes."""
    import sglang.srt.weight_sync.tensor_bucket as theirs
    from nemo_rl.models.generation.sglang.utils import train_utils

    train_utils.FlattenedTensorMetadata.__module__ = theirs.__name__
    theirs.FlattenedTensorMetadata = train_utils.FlattenedTensorMetadata


def _config(about: dict[str, Any]) -> dict[str, Any]:
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
    return {"sglang_cfg": inner, "stop_strings": None}


def _engines(about: dict[str, Any]) -> list[Any]:
    """Handles to workers that are attached to the engines."""
    config, counts = _config(about), [engine["tp"] for engine in about["engines"]]
    return [_worker(config, index, counts[index], engine) for index, engine in enumerate(about["engines"])]


def _worker(config: dict[str, Any], index: int, gpus: int, engine: dict[str, Any]) -> Any:
    kind = _attached()
    held = kind(sum([gpus]), config, rank=index, base_gpu_id=index * gpus, num_gpus_per_engine=gpus)
    held.init(**_address(engine), router_ip=None, router_port=None)
    return common.Handle(held)


def _address(engine: dict[str, Any]) -> dict[str, Any]:
    host, port = common.host_port(engine["url"])
    return {"dist_init_addr": f"{host}:{port}", "port": port, "nccl_port": port, "host": host}


def _attached() -> type:
    """NeMo-RL's worker class, which is given a running engine where it would launch one; its arguments are checked."""
    from sglang.srt.server_args import ServerArgs

    def attach(self: Any, server_args: dict[str, Any]) -> None:
        ServerArgs(**server_args)
        self.process = SimpleNamespace(pid=NO_PROCESS, is_alive=lambda: True)

    module: Any = sglang_worker
    module._apply_sglang_compat_patches = lambda: None  # they edit the files of an installed SGLang
    kind: type = module.SGLangGenerationWorker.local
    kind._launch_server_process = attach  # type: ignore[attr-defined]
    return kind


def _generation(about: dict[str, Any]) -> Any:
    """The real object, whose placement, router and ports are ours."""
    _attached()
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
    return module.SGLangGeneration(cluster, _config(about))


def shut_down() -> None:
    """Leave the trainer's group."""
    dist.destroy_process_group()
