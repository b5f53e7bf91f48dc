"""/server_info: the launch arguments of the version, and the schedulers' state."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from fakes.engine.profiles import ORDER
from fakes.engine.server_args import ARGUMENTS

if TYPE_CHECKING:
    from fakes.engine.engine_profile import EngineProfile
    from fakes.engine.protocol import EngineConfig
    from fakes.engine.tokenizer_manager import TokenizerManager

RESERVED_TOKENS = 6
"""max_req_input_len is so much below what one request may have in all: 506 of 512 (observed: 0.5.20, 0.5.23)."""


GRAPHS = ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend")
"""The phases that have CUDA graphs (managers/scheduler_components/memory_usage.py@0.5.23)."""

SINCE = {
    "startup_time": "0.5.17",
    "kv_events": "0.5.17",
    "world_size": "0.5.19",
    "launch_command": "0.5.20",
    "decode_cuda_graph_bs": "0.5.21",
    "decode_cuda_graph_memory_gb": "0.5.21",
    "hicache_object_layout": "0.5.23",
}
"""Keys that older versions lack: entrypoints/http_server.py:781@0.5.17, 818@0.5.20, 841@0.5.21, 863@0.5.23;
managers/scheduler.py:4765@0.5.19, 5251@0.5.21; observed: 0.5.12.post1, 0.5.17, 0.5.20 to 0.5.23."""


def _at(version: str) -> int:
    """Where a version stands in the order; miles was read as 0.5.19."""
    return ORDER.index("0.5.19" if version == "miles" else version)


@functools.cache
def _defaults(version: str) -> dict[str, Any]:
    at = _at(version)
    return {
        name: value
        for (first, last), groups in ARGUMENTS.items()
        if ORDER.index(first) <= at <= ORDER.index(last)
        for value, names in groups
        for name in names.split()
    }


def launch_arguments(config: EngineConfig, profile: EngineProfile, weight_version: str) -> dict[str, Any]:
    """Every field of ServerArgs: what this engine was given over what the version defaults to."""
    given = {
        "model_path": config.model_path,
        "tokenizer_path": config.model_path,
        "served_model_name": config.model_path,
        "skip_tokenizer_init": True,
        "load_format": "auto",
        "dtype": config.dtype,
        "device": config.device,
        "tp_size": config.tp_size,
        "dp_size": config.dp_size,
        "max_running_requests": config.max_running_requests,
        "max_total_tokens": config.max_total_tokens,
        "enable_memory_saver": config.enable_memory_saver,
        "enable_weights_cpu_backup": config.enable_weights_cpu_backup,
        "watchdog_timeout": config.watchdog_timeout,
        "random_seed": config.random_seed,
        "weight_version": weight_version,
    }
    if config.enable_lora:
        given |= {"enable_lora": True, "max_lora_rank": config.max_lora_rank, "lora_paths": []}
        given |= {"lora_target_modules": config.lora_target_modules, "enable_lora_overlap_loading": False}
        given |= {"max_loras_per_batch": config.max_loras_per_batch, "max_loaded_loras": config.max_loaded_loras}
    return {**_defaults(profile.version), **given}


def server_info(tm: TokenizerManager, internal_states: list[dict[str, Any]], context_len: int) -> dict[str, Any]:
    """entrypoints/http_server.py:863@0.5.23. From 0.5.18 `weight_version` is the one of the launch.

    internal_states: one dict per data-parallel rank, as `internal_state` makes it. A fake starts in no time, and
    `launch_command` is null where no command line launched it.
    """
    config, profile = tm.config, tm.profile
    live = profile.version in ("0.5.12.post1", "0.5.17")
    version = tm.weight_version if live else config.weight_version
    own: dict[str, Any] = {
        "launch_command": config.launch_command,
        "status": "ready",
        "max_total_num_tokens": config.max_total_tokens,
        "max_req_input_len": min(context_len, config.max_total_tokens) - RESERVED_TOKENS,
        "startup_time": {**_startup_time(), "tokenizer_e2e": 0.0},
        "hicache_object_layout": {
            "enabled": False,
            "backend": None,
            "page_size": 1,
            "hicache_object_layout": {"pools": []},
            "reason": "Hierarchical cache is disabled",
        },
        "kv_events": None,
        "internal_states": internal_states,
        "version": profile.version,
    }
    if profile.server_info_frontend:
        own["frontend"] = "python"
    return {**launch_arguments(config, profile, version), **_known(profile, own)}


def internal_state(config: EngineConfig, profile: EngineProfile, weight_version: str) -> dict[str, Any]:
    """One scheduler's state: its own view of the arguments, and what it holds (observed: 0.5.12.post1 to 0.5.23)."""
    graph = dict.fromkeys(GRAPHS, 0.0)
    memory: dict[str, Any] = {"weight": 0.0, "kvcache": 0.0, "token_capacity": config.max_total_tokens, "graph": 0}
    if _at(profile.version) >= ORDER.index("0.5.17"):
        memory |= {"startup_available": 0.0, "token_capacity_swa": None, "graph": graph}
    own = {
        "last_gen_throughput": 0.0,
        "memory_usage": memory,
        "effective_max_running_requests_per_dp": config.max_running_requests,
        "startup_time": _startup_time(),
        "world_size": config.tp_size,
        "decode_cuda_graph_bs": [],
        "decode_cuda_graph_memory_gb": 0.0,
    }
    arguments = launch_arguments(config, profile, weight_version)
    if _at(profile.version) >= ORDER.index("0.5.17"):
        arguments.pop("custom_sigquit_handler")  # a function is not sent
    return {**arguments, **_known(profile, own)}


def _known(profile: EngineProfile, values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in values.items() if _at(profile.version) >= ORDER.index(SINCE.get(name, ORDER[0]))
    }


def _startup_time() -> dict[str, Any]:
    """Seconds (observability/startup_time.py:11@0.5.23)."""
    whole = dict.fromkeys(("load_weight", "kv_cache_allocation", "scheduler_e2e"), 0.0)
    return {**whole, "cuda_graph": dict.fromkeys(GRAPHS, 0.0)}
