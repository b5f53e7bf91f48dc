"""slime's colocated path; see `slime_like`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import slime_like

slime_like.prepare()

from slime.backends.megatron_utils.update_weight import update_weight_from_tensor  # noqa: E402
from slime.backends.sglang_utils import sglang_engine  # noqa: E402
from slime.utils import distributed_utils  # noqa: E402


class Rank(slime_like.Rank):
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        device = SimpleNamespace(
            ipc_collect=lambda: None, empty_cache=lambda: None, synchronize=lambda: None, current_device=lambda: "cpu"
        )
        update_weight_from_tensor.accelerator = device
        update_weight_from_tensor.configure_expert_routing = lambda **_: (None, [])  # no experts in these models
        super().__init__(about, update_weight_from_tensor, sglang_engine, distributed_utils)
