"""xtuner's IPC path: `IPCWeightTransport` in every trainer rank, over its own targets, requests and gathering.

Given to it are batches of the state, where its iterator would export a model. Its agent loop pauses and continues
elsewhere, so a refit here is what its trainer calls an update: buckets only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common

common.ray()

import xtuner.v1.utils as utils  # noqa: E402
from xtuner.v1.utils.update_weights_utils import monkey_unpatch_torch_reductions  # noqa: E402

utils.monkey_unpatch_torch_reductions = monkey_unpatch_torch_reductions
utils.get_device = lambda: "cpu"
utils.get_torch_device_module = lambda: SimpleNamespace(empty_cache=lambda: None, synchronize=lambda: None)

from xtuner.v1.rl.weight_update import data, transport  # noqa: E402

BATCH_TENSORS = 8


class Batches:
    """What xtuner's weight iterator gives for SGLang: groups of batches, none marked as the last."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    def iter_batch_groups(self) -> Iterator[list[Any]]:
        """One group."""
        items = list(self._state.items())
        cut = range(0, len(items), BATCH_TENSORS)
        yield [
            SimpleNamespace(state_dict=dict(items[at : at + BATCH_TENSORS]), finished=False, train_enable_ep=False)
            for at in cut
        ]


def rollout_info(about: dict[str, Any], kind: str) -> Any:
    """What xtuner's controller tells the trainer ranks of its engines; `kind` is ipc or nccl."""
    tp = about["engines"][0]["tp"]
    targets = tuple(
        data.RolloutWeightUpdateTarget(
            endpoint_rank=number * tp,
            update_ranks=tuple(range(number * tp, (number + 1) * tp)),
            server_url=engine["url"],
            lifecycle_state="active",
        )
        for number, engine in enumerate(about["engines"])
    )
    config = SimpleNamespace(
        tensor_parallel_size=tp,
        expert_parallel_size=1,
        weight_transport_type=kind,
        checkpoint_name_prefix=None,
        checkpoint_engine_timeout=None,
        checkpoint_engine_sync_after_register=True,
        api_key=None,
        extra_rollout_config={},
        update_weight_bucket_size_in_gb=0.001,
    )
    return data.RolloutWeightUpdateInfo(
        rollout_config=config,
        weight_update_targets=targets,
        train_rank=about["rank"],
        transport_type=kind,
        backend="sglang",
        weight_update_host="127.0.0.1",
        weight_update_port=common.free_port(),
    )


class Rank:
    """One trainer rank."""

    def __init__(self, about: dict[str, Any]) -> None:
        common.init_process_group(about)
        info = rollout_info(about, "ipc")
        self.transport = transport.IPCWeightTransport(
            rank=about["rank"], logger=logging.getLogger("xtuner"), config=info.rollout_config, rollout_info=info
        )
        self.state: dict[str, Any] = {}

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters."""
        self.state = common.tensors(state)

    def refit(self) -> None:
        """One update."""
        self.transport.update(Batches(self.state))

    def close(self) -> None:
        """Nothing of it outlives the process."""
        self.transport.teardown()
