"""torchrl's NCCL path: `SGLangWeightSyncScheme` with one sender for each engine, over gloo where NCCL would be.

Pausing, polling, the requests and their order are torchrl's. Replaced are the backend of the group, in its own helper
and in the request that makes the engine join, and what asks a GPU. `poll=off` leaves out the polling of /get_load.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torchrl.weight_update.llm import sglang_nccl

from harness.sut.adapters.drivers import common

JOIN = "init_weights_update_group"


def _without_gpu() -> None:
    module: Any = sglang_nccl
    made, post, to = module._init_custom_process_group, module.requests.post, torch.Tensor.to

    def init_group(backend: str = "", **kwargs: Any) -> Any:
        return made(backend="gloo", **kwargs)

    def posted(url: str, **kwargs: Any) -> Any:
        if url.endswith(JOIN):
            kwargs["json"] = {**kwargs["json"], "backend": "gloo"}
        return post(url, **kwargs)

    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self if args and str(args[0]).startswith("cuda") else to(self, *args, **kwargs)

    module._init_custom_process_group = init_group
    module.requests = SimpleNamespace(post=posted, get=module.requests.get, exceptions=module.requests.exceptions)
    torch.Tensor.to = moved  # type: ignore[assignment, method-assign]
    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = lambda device=None: None


class Rank:
    """The trainer: one process, a sender for each engine."""

    def __init__(self, about: dict[str, Any]) -> None:
        _without_gpu()
        if about["settings"]["poll"] == "off":
            sglang_nccl.SGLangCollectiveTransport._wait_for_generation_pause = lambda self, model_id: None
        self.engines = about["engines"]
        self.state: dict[str, Any] = {}
        self.senders: list[Any] = []

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters."""
        self.state = common.tensors(state)

    def refit(self) -> None:
        """One update of every engine; the groups are made with the first."""
        if not self.senders:
            self.senders = [self._sender(engine) for engine in self.engines]
        for sender in self.senders:
            sender.send_weights("policy", self.state)

    def _sender(self, engine: dict[str, Any]) -> Any:
        scheme = sglang_nccl.SGLangWeightSyncScheme(
            server_url=engine["url"], num_gpus=engine["tp"], master_address="127.0.0.1"
        )
        transport = scheme.create_transport()
        transport.init_all_workers_group({name: (value.dtype, value.shape) for name, value in self.state.items()})
        return transport

    def close(self) -> None:
        """Leave the groups."""
        for sender in self.senders:
            sender.shutdown()
