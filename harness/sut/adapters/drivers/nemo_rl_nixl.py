"""NeMo-RL's checkpoint-engine path: `CheckpointEngineWeightSynchronizer`, senders in the policy's workers, receivers in
the engines' actors, and NIXL between them.

Its engine (`NIXLCheckpointEngine`), its mixins, its synchronizer and what decides for it are NeMo-RL's. NIXL itself is
the installed one, else `nixl_agents`; buffers lie on the CPU. `asyncio_actor=off` looks behind what its engine actor is
by Ray's rule.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common, nixl_agents
from harness.sut.adapters.drivers import nemo_rl_common as base

from nemo_rl.models.policy.workers import checkpoint_engine as sending  # isort: skip  # after the stand-ins of base
from nemo_rl.weight_sync import factory  # isort: skip

MEMORY = 16 << 20
RATIO = 0.07
"""A bucket is as small as they come: 1 MiB."""


class Worker(sending.PolicyCheckpointEngineMixin):  # type: ignore[misc]  # of NeMo-RL, which is not typed here
    """What a policy worker does in this path."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.rank = about["rank"]
        self.state: dict[str, Any] = {}

    def _checkpoint_engine_weight_iterator(self, kv_scales: Any = None) -> Any:
        return common.exported(self.state)

    def rpc(self, checkpoint_method: str, method_kwargs: Any = None) -> Any:
        """One call, in an event loop of its own: every policy worker is an asyncio actor."""
        import asyncio

        if checkpoint_method == "checkpoint_engine_total_memory_bytes":
            return MEMORY
        return asyncio.run(self.checkpoint_engine_rpc(checkpoint_method, method_kwargs))


class Policy:
    """The policy facade of the driver, as far as the synchronizer asks it."""

    def __init__(self, workers: list[Any]) -> None:
        self._workers = workers
        self.worker_group = SimpleNamespace(run_all_workers_single_data=self._run)

    def prepare_refit_info(self) -> None:
        """Nothing that this path reads."""

    def _run(self, name: str, *, checkpoint_method: str, method_kwargs: Any) -> list[Any]:
        return base.call_all(self._workers, "rpc", checkpoint_method=checkpoint_method, method_kwargs=method_kwargs)


class Rank(base.Driver):
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        super().__init__(about)
        nixl_agents.install(about["folder"])
        self.worker = Worker(about)
        workers = self.workers(about)
        if workers:
            _without_gpu(base.attached(), about["settings"]["asyncio_actor"])
            nixl = {"device": "cpu", "update_weights_bucket_memory_ratio": RATIO}
            self.generation = base.generation_of(about, refit_transport="nixl", refit_cfg={"nixl": nixl})
            self.driver = factory.create_weight_synchronizer(Policy(workers), self.generation, "sglang", False)
            self.driver.init_communicator()


def _without_gpu(kind: Any, asyncio_actor: str) -> None:
    import torch
    from nemo_rl.models.generation.sglang.utils import train_utils

    train_utils.monkey_patch_torch_reductions = lambda: None  # it replaces the device of handles to a GPU's memory
    kind._checkpoint_engine_devices = lambda self: [torch.device("cpu")] * self.num_gpus_per_engine
    kind.checkpoint_engine_total_memory_bytes = lambda self: [MEMORY] * self.num_gpus_per_engine
    here: Any = torch.cuda
    here.device = lambda device: contextlib.nullcontext()
    if asyncio_actor == "off":
        common.threaded(kind)
