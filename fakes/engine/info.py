"""/model_info, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakes.engine.tokenizer_manager import TokenizerManager


def model_info(tm: TokenizerManager, model_config: dict[str, Any]) -> dict[str, Any]:
    """The keys that this version has, in its order (entrypoints/http_server.py:812@0.5.23)."""
    values = {
        "model_path": tm.model_path,
        "served_model_name": tm.served_model_name,
        "tokenizer_path": tm.config.model_path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": tm.weight_version,
        "load_format": tm.load_format,
        "reasoning_parser": None,
        "tool_call_parser": None,
        "disaggregation_mode": "null",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": model_config.get("model_type"),
        "architectures": model_config.get("architectures"),
    }
    values["embedding"] = _embedding_plan()
    return {name: values[name] for name in tm.profile.model_info}


def _embedding_plan() -> dict[str, Any]:
    """What a model that does not embed says of it (configs/embedding_model_spec.py:223@0.5.17; observed: 0.5.23)."""
    names = {"family": "none", "task": "none", "execution": "none", "attention": "none", "pooling": "model_defined"}
    flags = (
        "supports_dimensions", "supports_token_embeddings", "supports_multimodal", "requires_embedding_flag",
        "auto_enable_embedding",
    )  # fmt: skip
    safe = ("safe_disable_kv_cache", "safe_disable_radix_cache", "safe_disable_chunked_prefill", "enabled")
    sizes = [
        4,
        *range(8, 36, 4),
        *range(48, 272, 16),
        *range(288, 544, 32),
        *range(576, 1088, 64),
        *range(1280, 2304, 256),
    ]
    cache = ("kv_cache_disabled", "radix_cache_disabled", "chunked_prefill_disabled")
    return {
        **names,
        "normalize": False,
        "postprocessor": "none",
        "tokenizer_special_tokens": "model_default",
        **dict.fromkeys(flags, False),
        "bcg_eligibility": "disabled",
        **dict.fromkeys(safe, False),
        "matryoshka_dimensions": [],
        "bcg": {
            "prefill_backend": "disabled",
            "enabled": False,
            "capture_token_budget": 2048,
            "capture_batch_sizes": sizes,
        },
        "cache": dict.fromkeys(cache, False),
    }
