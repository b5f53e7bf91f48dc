"""miles' colocated path; see `slime_like`."""

from __future__ import annotations

from typing import Any

from harness.sut.adapters.drivers import slime_like

slime_like.prepare()

from miles.backends.megatron_utils.update_weight import update_weight_from_tensor  # noqa: E402
from miles.backends.sglang_utils import sglang_engine  # noqa: E402
from miles.utils import distributed_utils  # noqa: E402


class Rank(slime_like.Rank):
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        super().__init__(about, update_weight_from_tensor, sglang_engine, distributed_utils)
