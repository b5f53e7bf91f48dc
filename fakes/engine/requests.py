"""The request bodies of every version: names, types, defaults, in the order in which they are validated.

A table, nothing else; `validation.py` reads it. Source: managers/io_struct.py of every version (0.5.12.post1,
0.5.17 to 0.5.23); miles takes the session fields of 0.5.21.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fakes.engine.engine_profile import EngineProfile

Kind = Literal[
    "str",
    "int",
    "bool",
    "str?",
    "bool?",
    "float?",
    "list[str]",
    "list[str]?",
    "list[list[int]]",
    "dict[str,str]",
    "dict[str,str]?",
    "dict[str,int]?",
    "dict",
    "dict?",
    "mode",
    "selector",
    "base64",
    "payloads",
    "rid",
    "reason?",
    "spans?",
]
"""`base64` is a list of base64 strings that are decoded here; `payloads` (0.5.12) passes strings through.
`reason?` is what ended a request, `spans?` which of its tokens are of which weight version."""


class _Required:
    """Marks a field without a default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()

LITERALS: dict[str, tuple[str, ...]] = {
    "mode": ("abort", "retract", "in_place"),
    "selector": ("target", "draft", "all"),
}


class Field(msgspec.Struct, frozen=True):
    """One field of a request body."""

    name: str
    kind: Kind
    default: Any = REQUIRED


class Struct(msgspec.Struct, frozen=True):
    """One request body of one version. Unknown keys are ignored."""

    name: str
    fields: tuple[Field, ...]


_FLUSH = Field("flush_cache", "bool", True)
_ABORT = Field("abort_all_requests", "bool", False)
_VERSION = Field("weight_version", "str?", None)
_EMPTY = Field("torch_empty_cache", "bool", False)
_SELECTOR = Field("selector", "selector", "all")
_GROUP = Field("group_name", "str", "weight_update_group")
_LOAD = Field("load_format", "str?", None)


def _tensor(p: EngineProfile) -> tuple[Field, ...]:
    kind: Kind = "base64" if p.base64 == "http400" else "payloads"
    draft = _SELECTOR if p.selector else Field("disable_draft_model", "bool?", None)
    return (Field("serialized_named_tensors", kind), _LOAD, _FLUSH, _ABORT, _VERSION, draft, _EMPTY)


def _distributed(p: EngineProfile) -> tuple[Field, ...]:
    head = (Field("names", "list[str]"), Field("dtypes", "list[str]"), Field("shapes", "list[list[int]]"), _GROUP)
    return (*head, _FLUSH, _ABORT, _VERSION, _LOAD, *((_SELECTOR,) if p.selector else ()), _EMPTY)


def _checker(p: EngineProfile) -> tuple[Field, ...]:
    if not p.checker_get:
        return (Field("action", "str"),)
    head = (Field("action", "str", "checksum"), Field("allow_quant_error", "bool", False))
    return (*head, Field("skip_tensor_list", "list[str]?", None), _SELECTOR) if p.selector else head


_DISK = (
    Field("model_path", "str"),
    _LOAD,
    _ABORT,
    _VERSION,
    Field("is_async", "bool", False),
    _EMPTY,
    Field("keep_pause", "bool", False),
    Field("recapture_cuda_graph", "bool", False),
    Field("token_step", "int", 0),
    _FLUSH,
    Field("manifest", "dict?", None),
)
_IPC = (Field("zmq_handles", "dict[str,str]"), _FLUSH, _VERSION, _EMPTY)
_INIT = (
    Field("master_address", "str"),
    Field("master_port", "int"),
    Field("rank_offset", "int"),
    Field("world_size", "int"),
    _GROUP,
    Field("backend", "str", "nccl"),
)


def _abort(p: EngineProfile) -> tuple[Field, ...]:
    reason: Kind = "reason?" if p.structs == "msgspec" else "dict?"
    head = (Field("abort_all", "bool", False), Field("finished_reason", reason, None))
    spans = (Field("weight_versions", "spans?", None),) if p.spans else ()
    return (*head, Field("abort_message", "str?", None), *spans)


_PINNED = Field("pinned", "bool", False)
_LORA_ID = Field("lora_id", "str?", None)
_LORA = Field("lora_name", "str")


def _lora_tensors(p: EngineProfile) -> tuple[Field, ...]:
    """One payload for all ranks in 0.5.12, then one for each (managers/io_struct.py:1895@0.5.12.post1, 2145@0.5.17)."""
    if p.structs == "dataclass":
        head = (_LORA, Field("config_dict", "dict"), Field("serialized_tensors", "str"), _PINNED)
        return (*head, Field("added_tokens_config", "dict?", None), _LORA_ID, _LOAD)
    head = (_LORA, Field("config_dict", "dict"), Field("serialized_named_tensors", "base64"), _PINNED)
    tail = (Field("added_tokens_config", "dict[str,int]?", None), _LORA_ID, _LOAD)
    return (*head, *tail, Field("expected_checksums", "dict[str,str]?", None))


_TAGS = (Field("tags", "list[str]?", None),)


def structs(p: EngineProfile) -> dict[str, Struct]:
    """All request bodies of one version by name.

    Every one has `rid` and `http_worker_ipc` (BaseReq, managers/io_struct.py:86@0.5.23), first in a struct and last in
    a dataclass.
    """
    rid: Kind = "str?" if p.structs == "msgspec" else "rid"
    base = (Field("rid", rid, None), Field("http_worker_ipc", "str?", None))
    fields: dict[str, tuple[Field, ...]] = {
        "PauseGenerationReqInput": (Field("mode", "mode", "abort"),),
        "ContinueGenerationReqInput": (Field("torch_empty_cache", "bool", True),),
        "UpdateWeightFromDiskReqInput": _DISK,
        "UpdateWeightsFromDistributedReqInput": _distributed(p),
        "UpdateWeightsFromTensorReqInput": _tensor(p),
        "UpdateWeightsFromIPCReqInput": _IPC,
        "InitWeightsUpdateGroupReqInput": _INIT,
        "DestroyWeightsUpdateGroupReqInput": (_GROUP,),
        "UpdateWeightVersionReqInput": (Field("new_version", "str"), Field("abort_all_requests", "bool", True)),
        "GetWeightsByNameReqInput": (Field("name", "str"), Field("truncate_size", "int", 100)),
        "ReleaseMemoryOccupationReqInput": _TAGS,
        "ResumeMemoryOccupationReqInput": _TAGS,
        "BeginWeightUpdateReqInput": (_SELECTOR,),
        "EndWeightUpdateReqInput": (),
        "CheckWeightsReqInput": _checker(p),
        "AbortReq": _abort(p),
        "LoadLoRAAdapterReqInput": (_LORA, Field("lora_path", "str"), _PINNED, _LORA_ID),
        "LoadLoRAAdapterFromTensorsReqInput": _lora_tensors(p),
        "UnloadLoRAAdapterReqInput": (_LORA, _LORA_ID),
        "SlowDownReqInput": (Field("forward_sleep_time", "float?"),),
    }
    if p.structs == "dataclass":
        return {name: Struct(name, own + base) for name, own in fields.items()}
    return {name: Struct(name, base + own) for name, own in fields.items()}
