"""slime's broadcast from trainer rank 0; see `slime_like_nccl`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import slime_like, slime_like_nccl

slime_like.prepare()

from slime.backends.megatron_utils.update_weight import update_weight_from_distributed as update  # noqa: E402 - after its stand-ins
from slime.backends.sglang_utils import sglang_engine  # noqa: E402 - after its stand-ins
from slime.utils import distributed_utils  # noqa: E402 - after its stand-ins


class Rank(slime_like_nccl.Rank):
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        update.mpu = slime_like_nccl.only_group(about["rank"])
        update.accelerator = SimpleNamespace(weight_update_backend=lambda: "gloo", current_device=lambda: "cpu")
        update.named_params_and_buffers = self.parameters
        update.all_gather_param = lambda name, param: param
        update.convert_to_hf = slime_like_nccl.as_it_is
        super().__init__(about, update, sglang_engine, distributed_utils)
