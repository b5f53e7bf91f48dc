"""/server_info: the launch arguments of the version, and the schedulers' state."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from fakes.engine.profiles import ORDER
from fakes.engine.server_args import ARGUMENTS

if TYPE_CHECKING:
    from fakes.engine.profiles import EngineProfile
    from fakes.engine.protocol import EngineConfig
    from fakes.engine.tokenizer_manager import TokenizerManager

RESERVED_TOKENS = 6
"""max_req_input_len is so much below what one request may have in all: 506 of 512 (observed: 0.5.20, 0.5.23)."""


@functools.cache
def _defaults(version: str) -> dict[str, Any]:
    at = ORDER.index("0.5.19" if version == "miles" else version)
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
    return {**_defaults(profile.version), **given}


def server_info(tm: TokenizerManager, internal_states: list[dict[str, Any]], context_len: int) -> dict[str, Any]:
    """entrypoints/http_server.py:863@0.5.23. From 0.5.18 `weight_version` is the one of the launch.

    internal_states: one dict per data-parallel rank, as `internal_state` makes it.
    """
    config, profile = tm.config, tm.profile
    live = profile.version in ("0.5.12.post1", "0.5.17")
    version = tm.weight_version if live else config.weight_version
    body: dict[str, Any] = {
        **launch_arguments(config, profile, version),
        "status": "ready",
        "max_total_num_tokens": config.max_total_tokens,
        "max_req_input_len": min(context_len, config.max_total_tokens) - RESERVED_TOKENS,
        "internal_states": internal_states,
        "version": profile.version,
    }
    if profile.ready_route:
        body["kv_events"] = None
    if profile.server_info_frontend:
        body["frontend"] = "python"
    return body


def internal_state(config: EngineConfig, profile: EngineProfile, weight_version: str) -> dict[str, Any]:
    """One scheduler's state: its own view of the arguments, and what it holds (observed: 0.5.20, 0.5.23)."""
    return {
        **launch_arguments(config, profile, weight_version),
        "last_gen_throughput": 0.0,
        "memory_usage": {"token_capacity": config.max_total_tokens},
        "effective_max_running_requests_per_dp": config.max_running_requests,
    }
