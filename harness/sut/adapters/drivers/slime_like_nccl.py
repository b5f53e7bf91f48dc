"""slime and what grew out of it, with engines on GPUs of their own: `UpdateWeightFromDistributed`, over gloo.

Theirs are the update (pause, flush, chunks, continue), the group with the engines, lock, requests and broadcasts. Given
to them are the parameters, whole, where Megatron's gathering would be; rank 0 is the one that broadcasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common, slime_like


class Rank:
    """One trainer rank; `update` is the module of UpdateWeightFromDistributed, `engine` that of SGLangEngine."""

    def __init__(self, about: Mapping[str, Any], update: Any, engine: Any, groups: Any) -> None:
        common.init_process_group(about)
        groups.init_gloo_group()
        self.state: dict[str, Any] = {}
        common.over_gloo(update)
        kind = getattr(engine.SGLangEngine, "local", engine.SGLangEngine)
        common.joins_over_gloo(kind)
        args = slime_like.arguments(about)
        self.updater = update.UpdateWeightFromDistributed(
            args, [], weights_getter=dict, model_name="llama", quantization_config=None
        )
        engines = [slime_like.attached(engine, args, index, given) for index, given in enumerate(about["engines"])]
        counts = [given["tp"] for given in about["engines"]]
        self.updater.connect_rollout_engines(engines, common.Handle(common.Lock()), engine_gpu_counts=counts)

    def parameters(self, *_: Any, is_expert: bool | None = None, **__: Any) -> Iterator[tuple[str, Any]]:
        """Each gathered from all ranks; these models have no experts."""
        if not is_expert:
            yield from common.exported(self.state)

    def set_weights(self, state: Mapping[str, Any], version: str) -> None:
        """The policy's parameters."""
        self.state = common.tensors(state)

    def refit(self) -> None:
        """One update."""
        self.updater.update_weights()

    def close(self) -> None:
        """Nothing of it outlives the process."""


def whole(args: Any, name: str, param: Any) -> Any:
    """What gathers a parameter from tensor parallel ranks."""
    return param


def as_it_is(args: Any, model_name: str, name: str, param: Any, quantization: Any = None) -> list[tuple[str, Any]]:
    """What turns Megatron's names into those of Hugging Face."""
    return [(name, param)]


def only_group(rank: int) -> SimpleNamespace:
    """Where Megatron says which rank this is: one pipeline stage, no tensor parallelism, the rest data parallel."""
    return SimpleNamespace(
        get_data_parallel_rank=lambda with_context_parallel=False: rank,
        get_tensor_model_parallel_rank=lambda: 0,
        get_pipeline_model_parallel_rank=lambda: 0,
        get_expert_model_parallel_world_size=lambda: 1,
    )
