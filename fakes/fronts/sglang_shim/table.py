"""What the shim has: module by module, a function that makes its names for a version.

Which version has what was read from the packages of 0.5.12.post1 and 0.5.17 to 0.5.23; miles, which branched off before
0.5.20, is taken to have what 0.5.19 has, and the session calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fakes.engine.profiles import ORDER, PROFILES

Make = Callable[[str], Mapping[str, Any]]

UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater"

ABSENT: dict[str, tuple[str, str]] = {
    "sglang.srt.entrypoints.http_server._launch_subprocesses": ("0.5.12.post1", "0.5.23"),
    "sglang.srt.managers.scheduler.configure_scheduler": ("0.5.12.post1", "0.5.23"),
    "sglang.srt.hf_transformers_utils": ("0.5.12.post1", "0.5.23"),
    "sglang.srt.patch_torch": ("0.5.12.post1", "0.5.23"),
    "sglang.srt.model_executor.model_runner.FlattenedTensorBucket": ("0.5.17", "0.5.23"),
    "sglang.srt.model_executor.model_runner.LocalSerializedTensor": ("0.5.17", "0.5.23"),
    "sglang.srt.model_executor.model_runner_components": ("0.5.12.post1", "0.5.12.post1"),
    UPDATER: ("0.5.12.post1", "0.5.12.post1"),
    "sglang.srt.managers.io_struct.BeginWeightUpdateReqInput": ("0.5.12.post1", "0.5.20"),
    "sglang.srt.managers.io_struct.EndWeightUpdateReqInput": ("0.5.12.post1", "0.5.20"),
}
"""Symbols that drivers ask for and that SGLang itself does not have, from one version to another: a driver's fallback
is what it does there."""


def at(version: str) -> int:
    """The place of a version among the releases."""
    return ORDER.index("0.5.19" if version == "miles" else version)


def is_absent(symbol: str, version: str) -> bool:
    """Whether that SGLang has no such symbol either."""
    if symbol.endswith("WeightUpdateReqInput") and version == "miles":
        return False
    first, last = ABSENT.get(symbol, ("", ""))
    return bool(first) and ORDER.index(first) <= at(version) <= ORDER.index(last)


def top(version: str) -> dict[str, Any]:
    """The names of `sglang` itself."""
    from fakes.fronts.sglang_shim.engine import Engine

    return {"__version__": version if version != "miles" else "0.5.17.dev30+miles", "Engine": Engine}


def modules(version: str) -> dict[str, Make]:
    """Every module of this version."""
    found = {name: make for name, make in _MODULES.items() if not is_absent(name, version)}
    if at(version) < ORDER.index("0.5.17"):
        found["sglang.srt.model_executor.model_runner"] = lambda v: {**_bucket(v), **_local(v)}
    return found


def _constants(version: str) -> Mapping[str, Any]:
    kinds = {"KV_CACHE": "kv_cache", "WEIGHTS": "weights", "CUDA_GRAPH": "cuda_graph"}
    return {
        **{f"GPU_MEMORY_TYPE_{name}": value for name, value in kinds.items()},
        "GPU_MEMORY_ALL_TYPES": list(kinds.values()),
    }


def _bucket(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim import bucket

    return {name: bucket.of(version, name) for name in ("FlattenedTensorBucket", "FlattenedTensorMetadata")}


def _local(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim.serializer import LocalSerializedTensor

    LocalSerializedTensor.__module__ = UPDATER if at(version) else "sglang.srt.model_executor.model_runner"
    return {"LocalSerializedTensor": LocalSerializedTensor}


def _utils(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim import processes, serializer

    return {"MultiprocessingSerializer": serializer.MultiprocessingSerializer, **processes.NAMES}


def _patch_torch(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim.serializer import monkey_patch_torch_reductions

    return {"monkey_patch_torch_reductions": monkey_patch_torch_reductions}


def _weight_sync(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim import weight_sync

    return {
        "update_weights": weight_sync.update_weights,
        "_preprocess_tensor_for_update_weights": weight_sync.whole,
    }


def _io_struct(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim.io_struct import classes

    return classes(PROFILES[version])


def _server_args(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim import server_args

    return server_args.names(version)


def _engine(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim.engine import Engine

    # What verl replaces (verl/workers/rollout/sglang_rollout/sglang_rollout.py:90@0.9.1).
    return {"Engine": Engine, "_set_envs_and_config": lambda server_args: None}


def _engine_base(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim import engine_base

    return {"EngineBase": engine_base.of(PROFILES[version])}


def _http_server(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim import server_args
    from fakes.fronts.sglang_shim.engine import Engine
    from fakes.fronts.sglang_shim.launching import launch_server

    return {"launch_server": launch_server, "Engine": Engine, "ServerArgs": server_args.names(version)["ServerArgs"]}


def _without_kernels(module: str, *names: str) -> Make:
    """Names that are imported at the top of a driver, and that the shim has nothing behind: calling one says so."""

    def make(version: str) -> Mapping[str, Any]:
        def inert(name: str) -> Any:
            def kernel(*_: Any, **__: Any) -> None:
                from fakes.fronts import sglang_shim

                sglang_shim.lacking(f"{module}.{name}()")
                raise NotImplementedError(f"refitcheck's shim of SGLang {version} has nothing behind {module}.{name}")

            return kernel

        return {name: inert(name) for name in names}

    return make


_FP8 = "sglang.srt.layers.quantization.fp8_utils"
_TOKENIZERS = "sglang.srt.utils.hf_transformers_utils"
_LOADER = "sglang.srt.model_loader.utils"


def _launch(version: str) -> Mapping[str, Any]:
    from fakes.fronts.sglang_shim.launching import run_server

    return {"run_server": run_server}


_MODULES: dict[str, Make] = {
    "sglang.launch_server": _launch,
    "sglang.srt.constants": _constants,
    "sglang.srt.entrypoints.EngineBase": _engine_base,
    "sglang.srt.entrypoints.engine": _engine,
    "sglang.srt.entrypoints.http_server": _http_server,
    "sglang.srt.managers.io_struct": _io_struct,
    _FP8: _without_kernels(
        _FP8, "quant_weight_ue8m0", "transform_scale_ue8m0", "mxfp8_group_quantize", "per_block_cast_to_fp8"
    ),
    _TOKENIZERS: _without_kernels(_TOKENIZERS, "get_tokenizer"),
    _LOADER: _without_kernels(_LOADER, "should_deepgemm_weight_requant_ue8m0"),
    "sglang.srt.model_executor.model_runner": lambda version: {},
    UPDATER: _local,
    "sglang.srt.server_args": _server_args,
    "sglang.srt.utils": _utils,
    "sglang.srt.utils.common": _utils,
    "sglang.srt.utils.patch_torch": _patch_torch,
    "sglang.srt.weight_sync.tensor_bucket": _bucket,
    "sglang.srt.weight_sync.utils": _weight_sync,
}
