"""Arguments of SGLang's Python API as the fields of its request structs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

GENERATE_ARGUMENTS = frozenset(
    (
        "image_data",
        "audio_data",
        "video_data",
        "mm_hashes",
        "mm_content_hashes",
        "return_logprob",
        "logprob_start_len",
        "top_logprobs_num",
        "token_ids_logprob",
        "lora_path",
        "custom_logit_processor",
        "require_reasoning",
        "return_hidden_states",
        "return_routed_experts",
        "routed_experts_start_len",
        "stream",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "routed_dp_rank",
        "disagg_prefill_dp_rank",
        "kv_hints",
        "data_parallel_rank",
        "external_trace_header",
        "rid",
        "session_params",
        "priority",
        "session_id",
        "cache_salt",
    )
)
"""Keyword arguments of Engine.generate besides prompt, sampling_params and input_ids (engine.py:433@0.5.23)."""


def fields_of(obj: Any) -> dict[str, Any]:
    """The fields of a request: a mapping, a msgspec struct, a dataclass, any object's attributes; None has none."""
    if obj is None:
        return {}
    if isinstance(obj, Mapping):
        return dict(obj)
    if isinstance(obj, msgspec.Struct):
        return msgspec.structs.asdict(obj)
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}
    return dict(vars(obj))


def generate_fields(prompt: Any, sampling_params: Any, input_ids: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of GenerateReqInput; TypeError for an argument that Engine.generate does not have."""
    for name in more:
        if name not in GENERATE_ARGUMENTS:
            raise TypeError(f"Engine.generate() got an unexpected keyword argument '{name}'")
    fields = {"text": prompt, "input_ids": input_ids, "sampling_params": sampling_params, **more}
    return {name: value for name, value in fields.items() if value is not None}
