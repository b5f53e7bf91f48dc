"""`sglang.srt.managers.io_struct`: the request structs of a version, of the table that the engine validates with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.generate_fields import typed_structs
from fakes.engine.requests import REQUIRED, structs

WHERE = "sglang.srt.managers.io_struct"
_SESSION = ("BeginWeightUpdateReqInput", "EndWeightUpdateReqInput")


def classes(profile: EngineProfile) -> dict[str, type]:
    """By name. Dataclasses up to 0.5.12.post1, keyword-only msgspec structs after (managers/io_struct.py:79@0.5.18)."""
    found: dict[str, list[tuple[str, Any]]] = {
        name: [(field.name, field.default) for field in struct.fields] for name, struct in structs(profile).items()
    }
    generate = typed_structs(profile).get("GenerateReqInput", ())
    found["GenerateReqInput"] = [(field.name, field.default) for field in generate]
    return {name: _made(name, fields, profile) for name, fields in found.items() if _has(profile, name)}


def _has(profile: EngineProfile, name: str) -> bool:
    return name not in _SESSION or profile.engine_session_calls


def _made(name: str, fields: list[tuple[str, Any]], profile: EngineProfile) -> type:
    ordered = sorted(fields, key=lambda field: field[1] is not REQUIRED)  # stable: those without a default first
    if profile.structs == "dataclass":
        listed = [
            (at, Any) if default is REQUIRED else (at, Any, dataclasses.field(default=_plain(default)))
            for at, default in ordered
        ]
        made = dataclasses.make_dataclass(name, listed)
        made.__module__ = WHERE
        return made
    spec: list[Any] = [(at, Any) if default is REQUIRED else (at, Any, _plain(default)) for at, default in ordered]
    return msgspec.defstruct(name, spec, kw_only=True, module=WHERE)


def _plain(default: Any) -> Any:
    return None if isinstance(default, (list, dict, Mapping)) else default
