"""UniRL's colocated path: `TensorWeightSync` in every trainer rank, with the `SGLangLLMRolloutEngine` beside it.

Serialising, buckets and requests are UniRL's. Given to them are the tensors of a state, where its walk over an FSDP
module would be, and a rollout engine whose server runs already. It drives engines of one GPU each: it ships one
payload.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common

RAY = common.ray()

from unirl.distributed.weight_sync.full import tensor  # noqa: E402 - after its stand-ins
from unirl.rollout.engine.sglang_llm import engine as rollout  # noqa: E402 - after its stand-ins

BUCKET_BYTES = 128 * 1024


def attached(given: dict[str, Any]) -> Any:
    """UniRL's engine, over a server that runs."""
    held = object.__new__(rollout.SGLangLLMRolloutEngine)
    held._base_url = given["url"]
    held._is_offloaded = held._weights_onloaded_for_sync = held._lora_loaded = False
    held._server_process = SimpleNamespace(is_alive=lambda: True)
    return held


def of(kind: type, state: Any, rank: int, **more: Any) -> Any:
    """A weight sync of this kind whose walk gives `state()`."""
    made = kind(backend=None, **more)
    made._bucket_bytes = BUCKET_BYTES
    made.rank_info = SimpleNamespace(rank=rank)
    made._iter_full_tensors = lambda: common.exported(state())
    return made


class Rank:
    """One trainer rank, with the engine on its GPU."""

    def __init__(self, about: dict[str, Any]) -> None:
        import torch.multiprocessing

        torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]  # torch's own, without types
        common.init_process_group(about)
        self.state: dict[str, Any] = {}
        self.engine = attached(about["engines"][about["rank"]])
        self.sync = of(tensor.TensorWeightSync, lambda: self.state, about["rank"], rollout=self.engine)

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters."""
        self.state = common.tensors(state)

    def refit(self) -> None:
        """Weights get their memory, are sent, and the rest comes back."""
        self.engine.onload_weights()
        self.sync.sync()
        rollout.SGLangLLMRolloutEngine.wake_up(self.engine)

    def phase(self, name: str) -> None:
        """The trainer takes the memory."""
        if name == "train":
            rollout.SGLangLLMRolloutEngine.sleep(self.engine)

    def close(self) -> None:
        """Nothing of it outlives the process."""
