"""slime and what grew out of it: `UpdateWeightFromTensor` in every trainer rank, `SGLangEngine` actors over HTTP.

Theirs are the update (pause, flush, chunks, continue), the gathering of handles, and the actor's HTTP calls. Given to
them are an iterator of named tensors, where Megatron's export would be, and actors that are attached to gated engines.
"""

from __future__ import annotations

import base64
import importlib
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common

CHUNK_BYTES = 128 * 1024
NO_PROCESS = 2**22 + 1


def prepare() -> Any:
    """Before a framework is imported."""
    ray = common.ray()
    for name in ("pybase64",):
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__dict__.update(b64encode=base64.b64encode, b64decode=base64.b64decode)
    return ray


class Chunks:
    """The export of a trainer: (name, tensor) pairs in chunks of bounded size."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def get_hf_weight_chunks(self, weights: Any, **_: Any) -> Iterator[list[tuple[str, Any]]]:
        """In the order of the state."""
        chunk: list[tuple[str, Any]] = []
        size = 0
        for name, tensor in self.state.items():
            mine = tensor.numel() * tensor.element_size()
            if chunk and size + mine > CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
            chunk.append((name, tensor))
            size += mine
        if chunk:
            yield chunk


class Rank:
    """One trainer rank; `update` is the module of UpdateWeightFromTensor, `engine` that of SGLangEngine."""

    def __init__(self, about: Mapping[str, Any], update: Any, engine: Any, groups: Any) -> None:
        import torch

        torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[assignment, method-assign]
        common.init_process_group(about)
        groups.init_gloo_group()
        self.about, self.chunks = about, Chunks()
        update.HfWeightIteratorBase.create = staticmethod(lambda **_: self.chunks)
        self.args = arguments(about)
        self.updater = update.UpdateWeightFromTensor(
            self.args,
            [],
            weights_getter=dict,
            model_name="llama",
            quantization_config=None,
        )
        self.engines = [attached(engine, self.args, index, given) for index, given in enumerate(about["engines"])]
        counts = [given["tp"] for given in about["engines"]]
        self.updater.connect_rollout_engines(self.engines, None, engine_gpu_counts=counts)
        self.away = False

    def set_weights(self, state: Mapping[str, Any], version: str) -> None:
        """The policy's parameters."""
        self.chunks.state = common.tensors(state)

    def refit(self) -> None:
        """One update; memory is resumed if it was released since the last, weights before and KV after it."""
        away, self.away = self.away, False
        if away:
            self._onload(["weights"])
        self.updater.update_weights()
        if away:
            self._onload(["kv_cache", "cuda_graph"])

    def _onload(self, tags: list[str]) -> None:
        if self.about["rank"] == 0:
            for engine in self.engines:
                engine.resume_memory_occupation.remote(tags=tags).get()

    def phase(self, name: str) -> None:
        """The trainer takes the memory."""
        if name == "train":
            self.away = True
            if self.about["rank"] == 0:
                for engine in self.engines:
                    engine.release_memory_occupation.remote().get()

    def close(self) -> None:
        """Nothing of it outlives the process."""


def attached(module: Any, args: Namespace, index: int, given: Mapping[str, Any]) -> Any:
    """An actor whose engine runs already."""
    host, port = common.host_port(given["url"])
    kind = getattr(module.SGLangEngine, "local", module.SGLangEngine)
    held = kind(args, rank=index, num_gpus_per_engine=given["tp"])
    held.node_rank, held.server_host, held.server_port = 0, host, port
    held.router_ip = held.router_port = None
    held.process = SimpleNamespace(pid=NO_PROCESS)
    return common.Handle(held)


def arguments(about: Mapping[str, Any]) -> Namespace:
    """What the update reads of the command line."""
    tp = about["engines"][0]["tp"]
    return Namespace(
        rollout_num_gpus_per_engine=tp,
        rollout_num_gpus=about["ranks"],
        actor_num_nodes=1,
        actor_num_gpus_per_node=about["ranks"],
        num_gpus_per_node=about["ranks"],
        pause_generation_mode=about["settings"].get("pause_mode", "retract"),
        update_weight_buffer_size=CHUNK_BYTES,
        megatron_to_hf_mode="raw",
        colocate=True,
        offload_rollout=True,
        q_lora_rank=None,
    )
