"""One rank's Megatron model on CPU: import a Hugging Face folder, train one step, export it again.

Runs in the environment of megatron-bridge. Without Transformer Engine and Triton: megatron-core's own layers, no fused
kernels. What only GPUs have is stood in for here, and nothing else of Megatron or its bridge is changed:

* three modules that ask for those packages when they are imported, and that no dense model on a CPU uses;
* `torch.cuda.current_device`, `set_device`, `synchronize` and `empty_cache`, which are called unasked;
* gloo, unlike NCCL, takes a strided tensor and sends its memory as it lies. `scatter` gets contiguous copies (the
  bridge scatters views of `torch.chunk`); other collectives refuse a strided tensor, as NCCL does.
"""

from __future__ import annotations

import datetime
import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ABSENT = (
    "megatron.bridge.peft.lora",
    "megatron.bridge.peft.lora_layers",
    "megatron.core.inference.contexts.attention_context.triton.tensor_ops",
)
"""Modules of megatron-bridge 0.3.1 and megatron-core 0.16.1 that import Transformer Engine or Triton at their top."""

_NO_FUSION = (
    "apply_rope_fusion",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "cross_entropy_loss_fusion",
    "gradient_accumulation_fusion",
    "masked_softmax_fusion",
    "persist_layer_norm",
)


class _StandIn(ModuleType):
    """A module in which every name is a class that nothing is an instance of."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """First in line, for the modules of `ABSENT` alone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in ABSENT else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def prepare() -> str:
    """Import everything, once, before ranks are forked. Returns the versions."""
    sys.meta_path.insert(0, _Finder())
    import megatron.bridge
    import torch
    from megatron.core.extensions.transformer_engine import HAVE_TE

    if HAVE_TE:
        raise RuntimeError("Transformer Engine is installed: this is no environment for a CPU")
    torch.set_num_threads(1)
    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    for name in ("set_device", "synchronize", "empty_cache"):
        setattr(cuda, name, lambda *args, **kwargs: None)
    _keep_contiguous(torch.distributed)
    return f"megatron-bridge {megatron.bridge.__version__}, megatron-core {megatron.core.__version__}"


def raw(tensor: Any) -> tuple[str, list[int], bytes]:
    """A tensor's dtype as torch names it, its shape, and its bytes in C order."""
    import torch

    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape), data


def _keep_contiguous(distributed: Any) -> None:
    scatter, broadcast, all_gather = distributed.scatter, distributed.broadcast, distributed.all_gather

    @functools.wraps(scatter)
    def scatter_copies(tensor: Any, parts: Any = None, *args: Any, **kwargs: Any) -> Any:
        return scatter(tensor, [part.contiguous() for part in parts] if parts else parts, *args, **kwargs)

    @functools.wraps(broadcast)
    def broadcast_whole(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_strided(tensor)
        return broadcast(tensor, *args, **kwargs)

    @functools.wraps(all_gather)
    def all_gather_whole(tensors: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        for each in (*tensors, tensor):
            _refuse_strided(each)
        return all_gather(tensors, tensor, *args, **kwargs)

    distributed.scatter, distributed.broadcast = scatter_copies, broadcast_whole
    distributed.all_gather = all_gather_whole


def _refuse_strided(tensor: Any) -> None:
    if not tensor.is_contiguous():
        raise ValueError("Tensors must be contiguous")  # as ProcessGroupNCCL says


class Policy:
    """This rank's shards of one model, in `tensor_parallel` x `pipeline_parallel` ranks (the rest is data parallel).

    `store` is a file that all ranks of the job meet at; gloo takes its ports from the system.
    """

    def __init__(
        self, rank: int, world: int, store: str, tensor_parallel: int, pipeline_parallel: int, timeout_s: float
    ) -> None:
        import torch.distributed
        from megatron.core import parallel_state

        dist: Any = torch.distributed
        self._parallel = (tensor_parallel, pipeline_parallel)
        self._models: dict[tuple[str, str], Any] = {}
        self._model: Any = None
        self._bridge: Any = None
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, world),
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=timeout_s),
        )
        parallel_state.initialize_model_parallel(tensor_parallel, pipeline_parallel)

    def load(self, folder: str, dtype: str) -> int:
        """Import `folder` into the model of its config.json, all ranks together. Returns this rank's parameters."""
        from megatron.bridge import AutoBridge

        self._bridge = AutoBridge.from_hf_pretrained(folder)
        key = (Path(folder, "config.json").read_text(encoding="utf-8"), dtype)
        if key not in self._models:
            self._models = {key: self._built(dtype)}
        self._model = self._models[key]
        self._bridge.load_hf_weights(self._model)
        return sum(parameter.numel() for parameter in self._model[0].parameters())

    def train(self) -> None:
        """One step that every number format takes exactly: each parameter of this rank is negated."""
        for parameter in self._model[0].parameters():
            parameter.data.neg_()

    def export(self) -> Iterator[tuple[str, Any]]:
        """The bridge's own iterator: (HF name, full tensor), the same on every rank; collectives between them."""
        yield from self._bridge.export_hf_weights(self._model, cpu=True, show_progress=False)

    def _built(self, dtype: str) -> list[Any]:
        import torch
        from megatron.core import parallel_state
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

        kind = getattr(torch, dtype)
        provider = self._bridge.to_megatron_provider(load_weights=False)
        provider.tensor_model_parallel_size, provider.pipeline_model_parallel_size = self._parallel
        provider.bf16, provider.fp16 = kind is torch.bfloat16, kind is torch.float16
        provider.params_dtype = provider.pipeline_dtype = provider.autocast_dtype = kind
        provider.use_cpu_initialization = True
        for name in _NO_FUSION:
            setattr(provider, name, False)
        normed = bool(getattr(provider, "qk_layernorm", False))
        provider.transformer_layer_spec = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=normed)
        provider.finalize()
        model = provider.provide(
            pre_process=parallel_state.is_pipeline_first_stage(), post_process=parallel_state.is_pipeline_last_stage()
        ).to(kind)
        model.model_type = None
        return [model]
