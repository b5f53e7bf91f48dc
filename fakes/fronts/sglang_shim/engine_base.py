"""`sglang.srt.entrypoints.EngineBase`: what an engine must have. From 0.5.21 on that includes the session calls, so a
driver's subclass without them cannot be made any more (entrypoints/EngineBase.py:48@0.5.23)."""

from __future__ import annotations

from abc import ABC, ABCMeta
from typing import Any

from fakes.engine.engine_profile import EngineProfile

_ABSTRACT = (
    "generate",
    "flush_cache",
    "update_weights_from_tensor",
    "release_memory_occupation",
    "resume_memory_occupation",
    "shutdown",
)
_SESSION = ("begin_weight_update", "end_weight_update")
_OPTIONAL = ("load_lora_adapter", "unload_lora_adapter")


def of(profile: EngineProfile) -> type:
    """The abstract class of this version. miles: as in the sglang that miles-rl 0.0.2 brings, without them."""
    names = (*_ABSTRACT, *(_SESSION if profile.engine_session_calls and profile.version != "miles" else ()))
    body: dict[str, Any] = {name: _method(name, abstract=True) for name in names}
    body |= {name: _method(name, abstract=False) for name in _OPTIONAL}
    return ABCMeta("EngineBase", (ABC,), {**body, "__module__": "sglang.srt.entrypoints.EngineBase"})


def _method(name: str, *, abstract: bool) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        """Left to the engine."""

    method.__name__ = name
    method.__isabstractmethod__ = abstract  # type: ignore[attr-defined]  # what abstractmethod sets
    return method
