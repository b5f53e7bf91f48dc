"""UniRL's broadcast from trainer rank 0 to engines on GPUs of their own, over gloo; see `unirl`."""

from __future__ import annotations

from typing import Any

from harness.sut.adapters.drivers import common, unirl

from unirl.distributed.weight_sync.full import nccl  # isort: skip  # after the ray that common made
from unirl.rollout.engine.sglang_llm import engine as rollout  # isort: skip
from unirl.utils import distributed_utils  # isort: skip

common.over_gloo(distributed_utils)
common.joins_over_gloo(rollout.SGLangLLMRolloutEngine)
ROLE = "rollout"


class Worker:
    """What a worker actor of the rollout slab is to a trainer."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def call(self, role: str, name: str, args: Any, kwargs: Any) -> Any:
        """A method of the role that lives in this worker."""
        return getattr(self._engine, name)(*args, **kwargs)


class Rank:
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        common.init_process_group(about)
        self.state: dict[str, Any] = {}
        self.sync = unirl.of(nccl.NCCLWeightSync, lambda: self.state, about["rank"])
        if about["rank"] == 0:
            workers = [common.Handle(Worker(unirl.attached(given))) for given in about["engines"]]
            self.sync.set_rollout_targets(workers, ROLE)
            address, port = self.sync.pick_master()
            self.sync.connect(master_addr=address, master_port=port, num_rollout_gpus=len(workers))

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters."""
        self.state = common.tensors(state)

    def refit(self) -> None:
        """One sync."""
        self.sync.sync()

    def close(self) -> None:
        """Nothing of it outlives the process."""
