"""NeMo-RL with engines on GPUs of their own: its disaggregated synchronizer and its broadcast from trainer rank 0.

As in its Megatron worker (nemo_rl/models/policy/workers/megatron_policy_worker.py:2584), rank 0 alone connects and
broadcasts, the others walk the export. `trainer=fsdp2` is a policy of the other backend, which cannot. Replaced is the
backend of the group: gloo where NCCL would be.
"""

from __future__ import annotations

from typing import Any

from harness.sut.adapters.drivers import common
from harness.sut.adapters.drivers import nemo_rl_common as base

from nemo_rl.models.policy import utils as policy_utils  # isort: skip  # after the stand-ins that base installs
from nemo_rl.weight_sync import sglang_weight_synchronizer  # isort: skip

GROUP = "nemo_rl_sglang"
common.over_gloo(policy_utils)


class Worker:
    """What a Megatron policy worker does in this path."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.state: dict[str, Any] = {}
        self.rank = about["rank"]
        self.engines = [] if self.rank else base.engines_of(about)
        self.lock = common.Handle(common.Lock())
        self.version = 0
        self.group: Any = None

    def connect(self, engine_gpu_counts: list[int]) -> None:
        """Rank 0 alone; a group from before is left first."""
        if self.rank:
            return
        given = {"group_name": GROUP, "rollout_engines": self.engines}
        if self.group is not None:
            policy_utils.disconnect_rollout_engines_from_distributed(model_update_group=self.group, **given)
            self.group = None
        self.group = policy_utils.connect_rollout_engines_from_distributed(
            engine_gpu_counts=list(engine_gpu_counts), **given
        )

    def update(self, buffer_size_bytes: int) -> None:
        """Collective: the export; rank 0 broadcasts it."""
        self.version += 1
        found = base.buckets(self.state, buffer_size_bytes)
        if self.rank:
            for _ in found:
                pass
            return
        policy_utils.broadcast_hf_buckets_via_distributed_impl(
            bucket_iterator=found,
            rollout_engines=self.engines,
            rollout_engine_lock=self.lock,
            group_name=GROUP,
            model_update_group=self.group,
            weight_version=self.version,
        )


class Policy:
    """The policy facade of the driver, as far as the synchronizer asks it."""

    def __init__(self, workers: list[Any], trainer: str) -> None:
        self.cfg = {"megatron_cfg": {"enabled": trainer == "megatron"}}
        self._workers = workers

    def prepare_refit_info(self) -> None:
        """Nothing that this path reads."""

    def connect_sglang_rollout_engines_distributed(self, *, engine_gpu_counts: Any, **_: Any) -> None:
        """In every worker."""
        base.RAY.get(base.call_all(self._workers, "connect", engine_gpu_counts=engine_gpu_counts))  # type: ignore[attr-defined]  # what Ray's stand-in has

    def update_weights_to_sglang_distributed(self, *, buffer_size_bytes: int, **_: Any) -> list[Any]:
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
            policy = base.declared(Policy(workers, about["settings"]["trainer"]))
            self.driver = sglang_weight_synchronizer.SGLangDisaggregatedWeightSynchronizer(
                policy, self.generation, base.BUCKET_BYTES / 1024**3
            )
            self.driver.init_communicator()
