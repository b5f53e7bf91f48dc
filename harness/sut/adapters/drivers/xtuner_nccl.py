"""xtuner's broadcast from trainer rank 0: `NCCLWeightTransport`, over gloo; see `xtuner`."""

from __future__ import annotations

import logging
from typing import Any

from harness.sut.adapters.drivers import common, xtuner

from xtuner.v1.rl.weight_update import transport  # isort: skip  # after the stand-ins that xtuner's driver installs

JOIN = "init_weights_update_group"


class OverGloo(transport.NCCLWeightTransport):  # type: ignore[misc]  # of xtuner, which is not typed here
    """Both sides of its group join over gloo."""

    @staticmethod
    def post_json(url: str, endpoint: str, payload: dict[str, Any], *, api_key: Any = None) -> Any:
        """The request of xtuner, with this backend."""
        given = {**payload, "backend": "gloo"} if endpoint == JOIN else payload
        return transport.NCCLWeightTransport.post_json(url, endpoint, given, api_key=api_key)

    @staticmethod
    def _init_external_process_group(**given: Any) -> Any:
        made = transport.NCCLWeightTransport._init_external_process_group
        return made(**{**given, "backend": "gloo"})


class Rank:
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        common.init_process_group(about)
        info = xtuner.rollout_info(about, "nccl")
        self.transport = OverGloo(rank=about["rank"], logger=logging.getLogger("xtuner"), rollout_info=info)
        self.state: dict[str, Any] = {}

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters."""
        self.state = common.tensors(state)

    def refit(self) -> None:
        """One update."""
        self.transport.update(xtuner.Batches(self.state))

    def close(self) -> None:
        """Nothing of it outlives the process."""
        self.transport.teardown()
