"""miles' broadcast from trainer rank 0, before and after it became a package; see `slime_like_nccl`."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import slime_like, slime_like_nccl

slime_like.prepare()

_HOME = "miles.backends.megatron_utils.update_weight.update_weight_from_distributed"
update: Any = importlib.import_module(f"{_HOME}.broadcast")
mixin: Any = importlib.import_module(f"{_HOME}.mixin")

from miles.backends.sglang_utils import sglang_engine  # noqa: E402 - after its stand-ins
from miles.utils import distributed_utils  # noqa: E402 - after its stand-ins


class Rank(slime_like_nccl.Rank):
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        one = SimpleNamespace(rank=0, size=1, group=None)
        state = SimpleNamespace(
            intra_dp_cp=SimpleNamespace(rank=about["rank"]),
            intra_dp=SimpleNamespace(rank=about["rank"]),
            tp=one,
            pp=one,
            ep=one,
        )
        for module in (update, mixin):
            module.get_parallel_state = lambda: state
        mixin.collect_named_tensors_for_weight_transfer = self.parameters
        mixin.named_params_and_buffers = self.parameters
        mixin.all_gather_param = slime_like_nccl.whole
        mixin.convert_to_hf = slime_like_nccl.as_it_is
        super().__init__(about, update, sglang_engine, distributed_utils)
