"""A weight updater for tests of the way to an oracle: ours, and only as much as they need."""

from dataclasses import dataclass, field
from typing import Any

from sglang.srt.constants import GPU_MEMORY_ALL_TYPES
from sglang.srt.managers.io_struct import BeginWeightUpdateReqOutput


@dataclass(kw_only=True)
class SchedulerWeightUpdaterManager:
    tp_worker: Any
    flush_cache: Any
    is_fully_idle: Any
    offload_tags: set = field(default_factory=set)
    opened: int = 0

    def begin_weight_update(self, req):
        self.opened += 1
        if self.opened == 3:
            raise RuntimeError("three is too many")
        return BeginWeightUpdateReqOutput(success=self.is_fully_idle(), message=f"{req.selector} {self.opened}")

    def update_weights_from_tensor(self, req):
        named = self.tp_worker.deserialize_own_rank(req.serialized_named_tensors)
        runner = self.tp_worker.runner.weight_updater
        success, message = runner.update_weights_from_tensor(named_tensors=named, load_format=req.load_format)
        return BeginWeightUpdateReqOutput(success=success and self.flush_cache(empty_cache=False), message=message)

    def release_memory_occupation(self, req):
        self.offload_tags.update(req.tags or GPU_MEMORY_ALL_TYPES)

    def end_weight_update(self, req):
        print("what it prints goes nowhere")
        raise SystemExit(7)
