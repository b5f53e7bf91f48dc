"""The body of /generate and the structs that it and others refer to, by version: names, types, defaults.

A table, nothing else: `fakes.fronts.openapi` publishes it. Source: /openapi.json of real servers, 0.5.12.post1 and
0.5.17 to 0.5.23. Types are written as Python's; `Any` is what SGLang leaves unchecked.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.profiles import ORDER
from fakes.engine.requests import REQUIRED


class Typed(msgspec.Struct, frozen=True):
    """One field: its JSON type in Python's notation, and its default."""

    name: str
    type: str
    default: Any = None


class _Row(msgspec.Struct, frozen=True):
    name: str
    type: str
    default: Any = None
    first: str = "0.5.12.post1"
    last: str = "0.5.23"


_ITEM_12 = "Any | str | ImageData | dict[str, Any] | VideoData"
_MEDIA_12 = f"list[list[{_ITEM_12}]] | list[{_ITEM_12}] | {_ITEM_12} | None"
_ITEM = "str | bytes | dict[str, Any] | ImageData | Any | VideoData"
_MEDIA = f"list[list[{_ITEM}]] | list[{_ITEM}] | {_ITEM} | None"

_GENERATE = (
    _Row("text", "str | list[str] | None"),
    _Row("input_ids", "list[list[int]] | list[int] | None", last="0.5.12.post1"),
    _Row("input_ids", "Any", first="0.5.17"),
    _Row("input_embeds", "list[list[list[float]]] | list[list[float]] | None"),
    _Row("image_data", _MEDIA_12, last="0.5.12.post1"),
    _Row("image_data", _MEDIA, first="0.5.17"),
    _Row("video_data", _MEDIA_12, last="0.5.12.post1"),
    _Row("video_data", _MEDIA, first="0.5.17"),
    _Row("audio_data", _MEDIA_12, last="0.5.12.post1"),
    _Row("audio_data", _MEDIA, first="0.5.17"),
    _Row("mm_hashes", "list[str] | list[list[str]] | None", first="0.5.17"),
    _Row("mm_content_hashes", "list[str | None] | list[list[str | None]] | None", first="0.5.18"),
    _Row("use_audio_in_video", "bool", False),
    _Row("video_config", "dict[str, Any] | None", first="0.5.19"),
    _Row("sampling_params", "list[dict[str, Any]] | dict[str, Any] | None"),
    _Row("watermark", "Any", first="0.5.22"),
    _Row("return_logprob", "list[bool] | bool | None"),
    _Row("logprob_start_len", "list[int] | int | None"),
    _Row("top_logprobs_num", "list[int] | int | None"),
    _Row("token_ids_logprob", "list[list[int]] | list[int] | None"),
    _Row("return_sampling_mask", "list[bool] | bool | None", first="0.5.17"),
    _Row(
        "sampling_logprobs_mode", "list['selected' | 'support' | None] | 'selected' | 'support' | None", first="0.5.21"
    ),
    _Row("return_text_in_logprobs", "bool", False),
    _Row("return_flat_raw_top_logprobs", "bool", False, first="0.5.17"),
    _Row("return_flat_raw_output_top_logprobs", "bool", False, first="0.5.22"),
    _Row("return_flat_raw_top_logprobs_b64", "bool", False, first="0.5.17"),
    _Row("stream", "bool", False),
    _Row("log_metrics", "bool", True),
    _Row("return_hidden_states", "list[bool] | bool", False, last="0.5.12.post1"),
    _Row("return_hidden_states", "list[bool | 'last'] | bool | 'last'", False, first="0.5.17"),
    _Row("return_routed_experts", "bool", False),
    _Row("routed_experts_start_len", "int", 0),
    _Row("return_indexer_topk", "bool", False),
    _Row("modalities", "list[str] | None"),
    _Row("session_params", "list[dict[str, Any]] | dict[str, Any] | None", last="0.5.12.post1"),
    _Row("session_params", "dict[str, Any] | None", first="0.5.17"),
    _Row("lora_path", "list[str | None] | str | None"),
    _Row("lora_id", "list[str | None] | str | None"),
    _Row("custom_logit_processor", "list[str | None] | str | None"),
    _Row("positional_embed_overrides", "Any"),
    _Row("bootstrap_host", "str | list[str] | None", last="0.5.12.post1"),
    _Row("bootstrap_host", "list[str | None] | str | None", first="0.5.17"),
    _Row("bootstrap_port", "list[int | None] | int | None"),
    _Row("bootstrap_room", "list[int] | int | None", last="0.5.12.post1"),
    _Row("bootstrap_room", "list[int | None] | int | None", first="0.5.17"),
    _Row("bootstrap_pair_key", "str | list[str] | None", last="0.5.12.post1"),
    _Row("bootstrap_pair_key", "list[str | None] | str | None", first="0.5.17"),
    _Row("decode_tp_size", "list[int | None] | int | None"),
    _Row("routed_dp_rank", "int | None"),
    _Row("data_parallel_rank", "int | None", last="0.5.12.post1"),
    _Row("data_parallel_rank", "int | None", first="0.5.18"),
    _Row("disagg_prefill_dp_rank", "int | None"),
    _Row("routing_key", "str | None"),
    _Row("conversation_id", "str | None"),
    _Row("background", "bool", False),
    _Row("require_reasoning", "bool", False),
    _Row("max_thinking_tokens", "int | None", first="0.5.17"),
    _Row("priority", "int | None"),
    _Row("extra_key", "str | list[str] | None"),
    _Row("no_logs", "bool", False),
    _Row("custom_labels", "dict[str, str] | None"),
    _Row("return_bytes", "bool", False),
    _Row("return_entropy", "bool", False),
    _Row("return_prompt_token_ids", "bool", False, first="0.5.17"),
    _Row("external_trace_header", "dict[str, Any] | None"),
    _Row("received_time", "float | None"),
    _Row("need_wait_for_mm_inputs", "bool | None"),
    _Row("num_items_assigned", "dict[Modality, list[int]] | None"),
    _Row("mm_data_mooncake", "list[Any] | None", first="0.5.17", last="0.5.18"),
    _Row("encoder_urls", "list[str] | None", first="0.5.17"),
    _Row("max_dynamic_patch", "int | None"),
    _Row("min_dynamic_patch", "int | None"),
    _Row("image_max_dynamic_patch", "int | None"),
    _Row("video_max_dynamic_patch", "int | None"),
    _Row("images_config", "dict[str, Any] | None", first="0.5.17"),
    _Row("mm_processor_kwargs", "dict[str, Any] | None", first="0.5.23"),
    _Row("multi_item_delimiter_indices", "list[list[int]] | list[int] | None"),
    _Row("token_indices_to_pool", "list[list[int]] | list[int] | None", first="0.5.21"),
    _Row("cache_salt", "str | list[str] | None", first="0.5.18"),
    _Row(
        "kv_hints",
        "list[dict[str, Any] | KvHintsEnvelope | None] | dict[str, Any] | KvHintsEnvelope | None",
        first="0.5.21",
    ),
    _Row("rid", "str | list[str] | None"),
    _Row("session_id", "str | None", first="0.5.17"),
    _Row("http_worker_ipc", "str | None"),
)
_IMAGE = (
    _Row("url", "str", REQUIRED),
    _Row("detail", "'auto' | 'low' | 'high' | None", "auto"),
    _Row("max_dynamic_patch", "int | None"),
    _Row("preprocess_kwargs", "dict[str, Any] | None"),
    _Row("content_hash", "str | None", first="0.5.18"),
    _Row("max_long_side_pixel", "int | None", first="0.5.23"),
)
_VIDEO = (
    _Row("url", "str", REQUIRED),
    _Row("preprocess_kwargs", "dict[str, Any] | None"),
    _Row("max_long_side_pixel", "int | None", first="0.5.23"),
)
_HINTS = (
    _Row("protocol_version", "str", REQUIRED, first="0.5.21"),
    _Row("message_id", "str", REQUIRED, first="0.5.21"),
    _Row("actions", "list[KvHintAction]", first="0.5.21"),
)
_HINT = (
    _Row("action_id", "str", REQUIRED, first="0.5.21"),
    _Row("action_type", "str", REQUIRED, first="0.5.21"),
    _Row("action_version", "str", REQUIRED, first="0.5.21"),
    _Row("payload", "dict[str, Any]", first="0.5.21"),
)
_SPAN = (
    _Row("version", "str", REQUIRED, first="0.5.19"),
    _Row("start", "int", REQUIRED, first="0.5.19"),
    _Row("end", "int", REQUIRED, first="0.5.19"),
)

_STRUCTS = {
    "GenerateReqInput": _GENERATE,
    "ImageData": _IMAGE,
    "VideoData": _VIDEO,
    "KvHintsEnvelope": _HINTS,
    "KvHintAction": _HINT,
    "WeightVersionSpan": _SPAN,
}

ENUMS: dict[str, tuple[int, ...]] = {"Modality": (1, 2, 3)}
"""Integer enumerations by name."""

PLAIN_STRUCTS = frozenset(("KvHintsEnvelope", "KvHintAction", "WeightVersionSpan"))
"""Those that are msgspec structs in every version; the rest are dataclasses."""


def typed_structs(p: EngineProfile) -> dict[str, tuple[Typed, ...]]:
    """All of them by name as one version has them; miles, whose document nobody has read, as 0.5.20."""
    at = ORDER.index(p.version)
    found = {}
    for name, rows in _STRUCTS.items():
        present = [row for row in rows if ORDER.index(row.first) <= at <= ORDER.index(row.last)]
        if present:
            found[name] = tuple(Typed(row.name, row.type, row.default) for row in present)
    return found
