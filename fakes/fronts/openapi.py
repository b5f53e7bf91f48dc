"""/openapi.json of each version, made of the tables that the engine validates with.

FastAPI makes the frame (paths, responses); parameters, bodies and their schemas come from here, since the core and not
FastAPI reads them. Tested against the documents of real servers; what differs is in `unmodelled.toml`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.generate_fields import ENUMS, PLAIN_STRUCTS, Typed, typed_structs
from fakes.engine.requests import LITERALS, REQUIRED, Kind, structs
from fakes.engine.routes import Route, routes

Schema = dict[str, Any]

_REF = "#/components/schemas/"

_KINDS: dict[Kind, str] = {
    "str?": "str | None",
    "bool?": "bool | None",
    "float?": "float | None",
    "list[str]?": "list[str] | None",
    "dict[str,str]": "dict[str, str]",
    "dict[str,str]?": "dict[str, str] | None",
    "dict[str,int]?": "dict[str, int] | None",
    "dict": "dict[str, Any]",
    "dict?": "dict[str, Any] | None",
    "mode": " | ".join(map(repr, LITERALS["mode"])),
    "selector": " | ".join(map(repr, LITERALS["selector"])),
    "base64": "list[bytes]",
    "payloads": "list[str | bytes]",
    "rid": "str | list[str] | None",
    "reason?": "dict[str, str | int | list[int] | None] | None",
    "spans?": "list[WeightVersionSpan] | None",
}

_NAMES: dict[str, Schema] = {
    "str": {"type": "string"},
    "bytes": {"type": "string", "contentMediaType": "application/octet-stream"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "Any": {},
}

_VALIDATION_ERRORS: dict[str, Schema] = {
    "HTTPValidationError": {
        "properties": {
            "detail": {"items": {"$ref": f"{_REF}ValidationError"}, "type": "array", "title": "Detail"},
        },
        "type": "object",
        "title": "HTTPValidationError",
    },
    "ValidationError": {
        "properties": {
            "loc": {
                "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "type": "array",
                "title": "Location",
            },
            "msg": {"type": "string", "title": "Message"},
            "type": {"type": "string", "title": "Error Type"},
            "input": {"title": "Input"},
            "ctx": {"type": "object", "title": "Context"},
        },
        "type": "object",
        "required": ["loc", "msg", "type"],
        "title": "ValidationError",
    },
}
"""FastAPI's own (fastapi/openapi/utils.py), which it adds only for bodies that it reads itself."""


def schema_of(notation: str) -> Schema:
    """The JSON schema of a type in Python's notation: `list[int | None] | 'a' | 'b'`."""
    return _schema(ast.parse(notation, mode="eval").body)


def _schema(node: ast.expr) -> Schema:
    if isinstance(node, ast.BinOp):
        return _union(_alternatives(node))
    if isinstance(node, ast.Constant):
        return {"type": "null"} if node.value is None else {"type": "string", "const": node.value}
    if isinstance(node, ast.Name):
        return dict(_NAMES[node.id]) if node.id in _NAMES else {"$ref": _REF + node.id}
    assert isinstance(node, ast.Subscript)
    assert isinstance(node.value, ast.Name)
    if node.value.id == "list":
        return {"items": _schema(node.slice), "type": "array"}
    assert isinstance(node.slice, ast.Tuple)
    key, value = node.slice.elts
    found: Schema = {"additionalProperties": _schema(value) or True, "type": "object"}
    return found if _schema(key) == _NAMES["str"] else {**found, "propertyNames": _schema(key)}


def _alternatives(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [*_alternatives(node.left), *_alternatives(node.right)]
    return [node]


def _union(nodes: list[ast.expr]) -> Schema:
    """anyOf, with the text constants among its members as one enum."""
    found: list[Schema] = []
    texts: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if not texts:
                found.append({"type": "string", "enum": texts})
            texts.append(node.value)
        else:
            found.append(_schema(node))
    found = [{"type": "string", "const": texts[0]} if s.get("enum") is texts and len(texts) == 1 else s for s in found]
    return found[0] if len(found) == 1 else {"anyOf": found}


def _struct_schema(name: str, fields: tuple[Typed, ...], titled: bool) -> Schema:
    properties: dict[str, Schema] = {}
    for field in fields:
        properties[field.name] = {**schema_of(field.type), "title": field.name.replace("_", " ").title()}
        if field.default is not REQUIRED and field.default is not None:
            properties[field.name]["default"] = field.default
    required = [field.name for field in fields if field.default is REQUIRED]
    schema: Schema = {"properties": properties, "type": "object"}
    if required:
        schema["required"] = required
    return {**schema, "title": name} if titled else schema


def schemas(p: EngineProfile) -> dict[str, Schema]:
    """The component schemas of one version that its routes refer to, by name."""
    known: dict[str, Schema] = {name: {"type": "integer", "enum": list(v), "title": name} for name, v in ENUMS.items()}
    for name, struct in structs(p).items():
        fields = tuple(Typed(f.name, _KINDS.get(f.kind, f.kind), f.default) for f in struct.fields)
        known[name] = _struct_schema(name, fields, p.structs == "dataclass")
    for name, typed in typed_structs(p).items():
        known[name] = _struct_schema(name, typed, name not in PLAIN_STRUCTS)
    used: set[str] = set()
    open_names = {route.body for route in routes(p).values() if route.body is not None}
    while open_names:
        used |= open_names
        referred = {found for name in open_names for found in re.findall(rf"'{_REF}(\w+)'", str(known[name]))}
        open_names = referred - used
    return {**{name: known[name] for name in sorted(used)}, **_VALIDATION_ERRORS}


def operation(route: Route) -> Schema:
    """What FastAPI cannot know of one route: its query parameters, its body, and that both can be refused."""
    extra: Schema = {}
    if route.handler == "flush_cache":
        number = {"type": "number", "minimum": 0.0, "default": 0.0, "title": "Timeout"}
        extra["parameters"] = [{"name": "timeout", "in": "query", "required": False, "schema": number}]
    if route.body is not None:
        body: Schema = {"$ref": _REF + route.body}
        if route.body_optional:
            body = {"anyOf": [body, {"type": "null"}], "title": "Obj"}
        extra["requestBody"] = {"content": {"application/json": {"schema": body}}}
        if not route.body_optional:
            extra["requestBody"]["required"] = True
    if extra:
        errors = {"application/json": {"schema": {"$ref": f"{_REF}HTTPValidationError"}}}
        extra["responses"] = {"422": {"description": "Validation Error", "content": errors}}
    return extra


def document(p: EngineProfile, frame: Mapping[str, Any]) -> dict[str, Any]:
    """The whole document; `frame` is what FastAPI makes of the routes."""
    return {**frame, "components": {"schemas": schemas(p)}}
