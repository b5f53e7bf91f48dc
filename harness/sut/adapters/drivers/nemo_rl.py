"""NeMo-RL with colocated SGLang engines: its synchronizer, its generation object with workers, its IPC sender.

Rank 0 holds the driver too: `SGLangColocatedWeightSynchronizer` over `SGLangGeneration`, whose workers are attached to
the gated engines instead of launching some. Every rank holds what a policy worker does on this path: connect the
gather groups, cut the state into buckets, send them. `fault_tolerance=true` turns its health monitor on, where it has
one.
"""

from __future__ import annotations

from typing import Any

from harness.sut.adapters.drivers import nemo_rl_common as base

from nemo_rl.models.policy import utils as policy_utils  # isort: skip  # after the stand-ins that base installs
from nemo_rl.weight_sync import sglang_weight_synchronizer  # isort: skip


class Worker:
    """What a policy worker does in this path (nemo_rl/models/policy/workers/dtensor_policy_worker_v2.py:1132)."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.state: dict[str, Any] = {}
        self.ipc: dict[str, Any] = {}
        self.engines = base.engines_of(about)

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
                bucket_iterator=base.buckets(self.state, buffer_size_bytes),
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
        given = {"engine_gpu_counts": engine_gpu_counts, "engine_gpu_offsets": engine_gpu_offsets}
        base.RAY.get(base.call_all(self._workers, "connect", **given))  # type: ignore[attr-defined]  # what Ray's stand-in has

    def update_weights_to_sglang_colocated(self, *, buffer_size_bytes: int, **_: Any) -> list[Any]:
        """In every worker: references."""
        return base.call_all(self._workers, "update", buffer_size_bytes=buffer_size_bytes)


class Rank(base.Driver):
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        super().__init__(about)
        self.worker = Worker(about)
        workers = self.workers(about)
        if workers:
            self.generation = base.generation_of(about)
            self.driver = sglang_weight_synchronizer.SGLangColocatedWeightSynchronizer(
                base.declared(Policy(workers)), self.generation, base.BUCKET_BYTES / 1024**3
            )
            self.driver.init_communicator()
