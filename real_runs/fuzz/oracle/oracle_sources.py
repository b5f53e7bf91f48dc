"""Where the manager comes from: the installed package, or a checkout of which only the manager's file is needed."""

from __future__ import annotations

import enum
import importlib
import importlib.machinery
import importlib.util
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANAGER = "managers/scheduler_components/weight_updater.py"
MIXIN = "managers/scheduler_update_weights_mixin.py"
NORM = "model.norm.weight"


class Request:
    """A request or reply struct of a detached run: its keyword arguments as attributes, and what is left out."""

    load_format = skip_tensor_list = weight_version = disable_draft_model = None
    torch_empty_cache = allow_quant_error = recapture_cuda_graph = False
    selector = "all"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = ("success", "message", "num_paused_requests")
        self.__dict__.update(dict(zip(names, args, strict=False)) | kwargs)


class Stand(types.ModuleType):
    """A module of SGLang that is not needed: every name of it is a request struct."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Request,), {})


class StandFinder:
    """Stands in for every module below `sglang` of a detached run."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """A stand-in for what is below `sglang`."""
        if name.partition(".")[0] != "sglang":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> Any:
        """An empty one."""
        return Stand(spec.name)

    def exec_module(self, module: Any) -> None:
        """A package, so that it has modules below it."""
        module.__path__ = []


class Disaggregation(enum.Enum):
    """The modes that the manager asks for."""

    NULL, PREFILL, DECODE = "null", "prefill", "decode"


def load_by_path(name: str, path: Path) -> Any:
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class Sources:
    """The manager's module and what stands around it. `runner` is None where the runner is scripted."""

    attached: bool
    version: str
    root: Path
    file: Path
    module: Any
    io: Any
    disaggregation: Any
    runner: Any
    load: Any
    deserialize: Any


def attach(join: Any) -> Sources:
    """The installed package, all of it SGLang's own. `join` takes the place of a group's rendezvous."""
    import sglang

    root = Path(next(iter(sglang.__path__))) / "srt"
    relative = MANAGER if (root / MANAGER).exists() else MIXIN
    module = importlib.import_module("sglang.srt." + relative[:-3].replace("/", "."))
    runner: Any = None
    if relative == MANAGER:
        runner = importlib.import_module("sglang.srt.model_executor.model_runner_components.weight_updater")
        runner.init_custom_process_group = join
        _without_context(runner)
    _without_context(module)
    return Sources(
        attached=True,
        version=str(sglang.__version__),
        root=root,
        file=root / relative,
        module=module,
        io=importlib.import_module("sglang.srt.managers.io_struct"),
        disaggregation=importlib.import_module("sglang.srt.disaggregation.utils").DisaggregationMode,
        runner=runner,
        load=importlib.import_module("sglang.srt.model_loader.weight_utils").default_weight_loader,
        deserialize=importlib.import_module("sglang.srt.utils").MultiprocessingSerializer.deserialize,
    )


def detach(checkout: Path, torch: Any) -> Sources:
    """The manager's file below `checkout`; FileNotFoundError when there is none."""
    found = sorted(checkout.rglob(MANAGER))
    if not found:
        raise FileNotFoundError(f"{checkout}: no {MANAGER} below it")
    ones = torch.ones
    known = {
        b"good": [(NORM, ones(64))],
        b"unknown": [("model.nothing.weight", ones(2))],
        b"misfit": [(NORM, ones(2))],
        b"empty": [],
    }
    sys.meta_path.insert(0, StandFinder())  # type: ignore[arg-type]
    constants: Any = importlib.import_module("sglang.srt.constants")
    for kind in ("KV_CACHE", "WEIGHTS", "CUDA_GRAPH"):
        setattr(constants, f"GPU_MEMORY_TYPE_{kind}", kind.lower())
    constants.GPU_MEMORY_ALL_TYPES = ["kv_cache", "weights", "cuda_graph"]
    disaggregation: Any = importlib.import_module("sglang.srt.disaggregation.utils")
    disaggregation.DisaggregationMode = Disaggregation
    utils: Any = importlib.import_module("sglang.srt.utils")
    utils.MultiprocessingSerializer = types.SimpleNamespace(deserialize=lambda data: known[bytes(data)])
    module = load_by_path("oracle_weight_updater", found[0])
    _without_context(module)
    return Sources(
        attached=False,
        version=checkout.name,
        root=found[0].parents[2],
        file=found[0],
        module=module,
        io=Stand("io_struct"),
        disaggregation=Disaggregation,
        runner=None,
        load=_load,
        deserialize=utils.MultiprocessingSerializer.deserialize,
    )


def _without_context(module: Any) -> None:
    """A module that asks SGLang's runtime context where it runs learns that it is rank 0 of one."""
    own = types.SimpleNamespace
    if hasattr(module, "get_parallel"):
        module.get_parallel = lambda: own(tp_group=own(cpu_group=None), tp_rank=0)
    if hasattr(module, "get_model"):
        module.get_model = lambda: own(weight_cache_mode="off")


def _load(param: Any, tensor: Any) -> None:
    if param.size() != tensor.size():
        raise AssertionError(f"Attempted to load weight ({tensor.size()}) into parameter ({param.size()})")
