"""What is wrong with a launch before anything listens: one `LaunchError` that says what, where and what to do."""

from __future__ import annotations

import fcntl
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fakes.fronts.launch_args import LaunchArgs

# uvicorn's names (SGLang hands --log-level to it: entrypoints/http_server.py:2997@0.5.23).
LOG_LEVELS = ("critical", "error", "warning", "info", "debug", "trace")

_AT_LEAST_ONE = ("tp_size", "dp_size", "max_total_tokens", "max_running_requests")


_ABSENT: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("pp_size", "nnodes", "attn_cp_size", "moe_dp_size", "tokenizer_worker_num"), (1,)),
    **dict.fromkeys(("enable_dp_attention", "is_embedding"), (False,)),
    **dict.fromkeys(("lora_paths", "speculative_algorithm"), (None, [])),
    "disaggregation_mode": ("null",),
    "load_format": ("auto", "safetensors"),
}
"""Options that make another engine of SGLang's and none of the fake's, with the values that do not."""

_SIZES = (
    "hidden_size",
    "intermediate_size",
    "vocab_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
    "max_position_embeddings",
)
MAX_SIZE = 1 << 24
MAX_LAYERS = 1000

MAKE_ONE = "`refitcheck model FOLDER` makes a tiny one that works"


class LaunchError(Exception):
    """The server cannot be started; the message is one line for a person."""


def check(args: LaunchArgs) -> None:
    """Raise the first of them. Values that need the model or the socket are checked where those are."""
    given = args.given
    for name in _AT_LEAST_ONE:
        if name in given and given[name] < 1:
            raise LaunchError(f"{_flag(name)} {given[name]}: must be 1 or more")
    _lora(given)
    watchdog = given.get("watchdog_timeout", 1.0)
    if not (math.isfinite(watchdog) and watchdog > 0):
        raise LaunchError(f"--watchdog-timeout {watchdog}: must be a finite number of seconds greater than 0")
    if not 0 <= args.port <= 65535:
        raise LaunchError(f"--port {args.port}: must be between 0 (any free one) and 65535")
    if args.log_level not in LOG_LEVELS:
        raise LaunchError(f"--log-level {args.log_level}: unknown; use one of {', '.join(LOG_LEVELS)}")
    if args.port_file is not None:
        _port_file(args.port_file)
    if args.ready_fd is not None:
        _descriptor("--ready-fd", args.ready_fd, os.O_WRONLY)
    if args.parent_fd is not None:
        _descriptor("--parent-fd", args.parent_fd, os.O_RDONLY)


def _lora(given: Mapping[str, Any]) -> None:
    """What SGLang asserts of LoRA's options (server_args.py:7417@0.5.12.post1, arg_groups/lora_hook.py:33@0.5.23)."""
    batch, loaded = given.get("max_loras_per_batch", 8), given.get("max_loaded_loras")
    if batch < 1:
        raise LaunchError("max_loras_per_batch must be positive")
    if not given.get("enable_lora"):
        return
    if not (given.get("max_lora_rank") and given.get("lora_target_modules")):
        raise LaunchError(
            "When no initial --lora-paths is provided, you need to specify both --max-lora-rank and "
            "--lora-target-modules for LoRA initialization. (The fake loads no --lora-paths: use /load_lora_adapter.)"
        )
    if loaded is not None and loaded < batch:
        raise LaunchError(
            "max_loaded_loras should be greater than or equal to max_loras_per_batch. "
            f"max_loaded_loras={loaded}, max_loras_per_batch={batch}"
        )


def without_effect(given: Mapping[str, Any]) -> list[str]:
    """Options that a trainer would see the effect of on SGLang and does not see here, as they were given."""
    lost = [name for name, harmless in _ABSENT.items() if name in given and given[name] not in harmless]
    return [_flag(name) + ("" if given[name] is True else f" {given[name]}") for name in lost]


def checkpoint(folder: Path, model_config: dict[str, Any], weights: Mapping[str, Any]) -> None:
    """--model-path: sizes that make a model, and every tensor that config.json promises."""
    from fakes.tiny import hf_shapes

    for name in _SIZES:
        value = model_config.get(name)
        if type(value) is not int or not 1 <= value <= MAX_SIZE:
            raise LaunchError(f"--model-path {folder}: {name} is {value!r} in config.json; {MAKE_ONE}")
    if model_config["num_hidden_layers"] > MAX_LAYERS:
        raise LaunchError(f"--model-path {folder}: more than {MAX_LAYERS} layers; {MAKE_ONE}")
    for name, shape in hf_shapes(model_config).items():
        found = tuple(weights[name].shape) if name in weights else None
        if found != shape:
            has = "is missing" if found is None else f"has shape {list(found)}"
            raise LaunchError(
                f"--model-path {folder}: tensor {name} {has}, config.json makes it {list(shape)}; {MAKE_ONE}"
            )


def tensor_parallel(model_config: dict[str, Any], tp_size: int) -> None:
    """--tp-size against the model."""
    heads, inner = int(model_config["num_attention_heads"]), int(model_config["intermediate_size"])
    if heads % tp_size or inner % tp_size:
        fits = ", ".join(str(n) for n in range(1, heads + 1) if not heads % n and not inner % n)
        raise LaunchError(
            f"--tp-size {tp_size}: does not divide the model's {heads} attention heads and intermediate size {inner}; "
            f"use one of {fits}"
        )


def _port_file(path: Path) -> None:
    if not path.parent.is_dir():
        raise LaunchError(f"--port-file {path}: there is no folder {path.parent}; make it first")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise LaunchError(f"--port-file {path}: cannot be written; name a file in a folder that can")


def _descriptor(flag: str, number: int, mode: int) -> None:
    try:
        kind = os.fstat(number).st_mode
    except (OSError, OverflowError):
        raise LaunchError(f"{flag} {number}: no such open file descriptor; pass one that the server inherits") from None
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        raise LaunchError(f"{flag} {number}: is no pipe; pass one end of a pipe")
    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE not in (mode, os.O_RDWR):
        end = "writing" if mode == os.O_WRONLY else "reading"
        raise LaunchError(f"{flag} {number}: is not the {end} end of its pipe")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
