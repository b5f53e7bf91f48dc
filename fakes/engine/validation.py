"""What FastAPI and pydantic say to a request body: the fields, or a 400 with their exact text.

Valid bodies of plain JSON types pass a short check here. Everything else (wrong types, lax coercions such as "true"
for a
bool, missing fields) goes to pydantic-core itself, imported when needed, over a schema of the same shape as SGLang's:
up to
0.5.12 a pydantic dataclass, from 0.5.17 a union of is-instance and a typed dict (utils/msgspec_utils.py:70@0.5.23),
which
is why two errors come for one mistake. SGLang turns FastAPI's 422 into a 400 with the text twice
(entrypoints/http_server.py:635-692@0.5.23).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.requests import LITERALS, REQUIRED, Field, Kind, Struct
from fakes.engine.routes import Route

SERVER_FILE = "sglang/srt/entrypoints/http_server.py"
"""The path that a 400 quotes; a real server prints its own installation in front of it."""


class Invalid(Exception):
    """The body is refused with HTTP 400; `body` is the JSON object that says why."""

    def __init__(self, route: Route, method: str, errors: list[Any]) -> None:
        super().__init__("invalid request")
        count = f"{len(errors)} validation error{'s' if len(errors) != 1 else ''}:\n"
        lines = "".join(f"  {error}\n" for error in errors)
        where = f'\n  File "{SERVER_FILE}", line {route.line}, in {route.function}\n    {method} {route.path}'
        self.errors = errors
        self.body = {
            "object": "error",
            "message": f"{count}{lines}{where} {errors}",
            "type": "Bad Request",
            "param": None,
            "code": 400,
        }


def parse(p: EngineProfile, route: Route, method: str, struct: Struct, value: Any) -> dict[str, Any] | None:
    """The fields of a decoded body with defaults filled in; None for an absent optional body. Raises `Invalid`."""
    if route.body_optional and (value is None or value is NULL):
        return None
    if value is None:
        raise Invalid(route, method, [missing_body()])
    if value is NULL:
        value = None
    if type(value) is dict:
        fields = _quick(struct, value)
        if fields is not None:
            return fields
    return _slow(p, route, method, struct, value)


class _Null:
    """A body that is the JSON text `null`: not the same as no body."""


NULL = _Null()


def missing_body() -> dict[str, Any]:
    """The error for no body at all."""
    return {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}


def _quick(struct: Struct, value: dict[str, Any]) -> dict[str, Any] | None:
    """The fields when every one present has exactly its JSON type, else None."""
    found = {}
    for field in struct.fields:
        if field.name not in value:
            if field.default is REQUIRED:
                return None
            found[field.name] = field.default
            continue
        given = value[field.name]
        if field.kind == "base64":
            given = _decode_all(given)
            if given is None:
                return None
        elif not _FITS[field.kind](given):
            return None
        found[field.name] = given
    return found


def _decode_all(value: Any) -> list[bytes] | None:
    if type(value) is not list:
        return None
    out = []
    for item in value:
        if type(item) is bytes:
            out.append(item)
            continue
        if type(item) is not str:
            return None
        try:
            out.append(base64.b64decode(item, validate=True))
        except ValueError:
            return None
    return out


def _texts(value: Any) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


def _shapes(value: Any) -> bool:
    return type(value) is list and all(type(row) is list and all(type(n) is int for n in row) for row in value)


_FITS: dict[Kind, Callable[[Any], bool]] = {
    "str": lambda v: type(v) is str,
    "int": lambda v: type(v) is int,
    "bool": lambda v: type(v) is bool,
    "str?": lambda v: v is None or type(v) is str,
    "bool?": lambda v: v is None or type(v) is bool,
    "float?": lambda v: v is None or (type(v) in (int, float) and math.isfinite(v)),
    "list[str]": _texts,
    "list[str]?": lambda v: v is None or _texts(v),
    "list[list[int]]": _shapes,
    "dict[str,str]": lambda v: type(v) is dict and all(type(x) is str for x in v.values()),
    "dict[str,str]?": lambda v: v is None or (type(v) is dict and all(type(x) is str for x in v.values())),
    "dict[str,int]?": lambda v: v is None or (type(v) is dict and all(type(x) is int for x in v.values())),
    "dict": lambda v: type(v) is dict,
    "dict?": lambda v: v is None or type(v) is dict,
    "mode": lambda v: type(v) is str and v in LITERALS["mode"],
    "selector": lambda v: type(v) is str and v in LITERALS["selector"],
    "payloads": lambda v: type(v) is list and all(type(x) in (str, bytes) for x in v),
    "rid": lambda v: v is None or type(v) is str or _texts(v),
    "reason?": lambda v: v is None,
    "spans?": lambda v: v is None,
}


def _slow(p: EngineProfile, route: Route, method: str, struct: Struct, value: Any) -> dict[str, Any]:
    from pydantic_core import ValidationError

    validator = _validator(p.structs, struct)
    try:
        result = validator.validate_python(value, from_attributes=True)
    except ValidationError as error:
        errors = [{**item, "loc": ("body", *item["loc"])} for item in error.errors(include_url=False)]
        raise Invalid(route, method, errors) from None
    found: dict[str, Any] = dict(result) if isinstance(result, dict) else vars(result)
    return {f.name: found.get(f.name, f.default) for f in struct.fields}


@functools.cache
def _validator(structs: str, struct: Struct) -> Any:
    return _msgspec_validator(struct) if structs == "msgspec" else _dataclass_validator(struct)


def _core_type(kind: Kind) -> Any:
    from pydantic_core import core_schema as cs

    text, number = cs.str_schema(), cs.int_schema()
    span = {name: cs.typed_dict_field(text if name == "version" else number) for name in ("version", "start", "end")}
    plain: dict[str, Any] = {
        "str": text,
        "int": number,
        "bool": cs.bool_schema(),
        "str?": cs.nullable_schema(text),
        "bool?": cs.nullable_schema(cs.bool_schema()),
        "float?": cs.nullable_schema(cs.float_schema()),
        "list[str]": cs.list_schema(text),
        "list[str]?": cs.nullable_schema(cs.list_schema(text)),
        "list[list[int]]": cs.list_schema(cs.list_schema(number)),
        "dict[str,str]": cs.dict_schema(text, text),
        "dict[str,str]?": cs.nullable_schema(cs.dict_schema(text, text)),
        "dict[str,int]?": cs.nullable_schema(cs.dict_schema(text, number)),
        "dict": cs.dict_schema(text, cs.any_schema()),
        "dict?": cs.nullable_schema(cs.dict_schema(text, cs.any_schema())),
        "base64": cs.no_info_before_validator_function(_decode_value, cs.list_schema(cs.bytes_schema())),
        "payloads": cs.list_schema(cs.union_schema([text, cs.bytes_schema()])),
        "rid": cs.nullable_schema(cs.union_schema([text, cs.list_schema(text)])),
        "reason?": cs.nullable_schema(
            cs.dict_schema(text, cs.nullable_schema(cs.union_schema([text, number, cs.list_schema(number)])))
        ),
        "spans?": cs.nullable_schema(cs.list_schema(_struct_schema("WeightVersionSpan", span))),
    }
    return plain[kind] if kind in plain else cs.literal_schema(list(LITERALS[kind]))


def _decode_value(value: Any) -> Any:
    """utils/msgspec_utils.py:22@0.5.23: strings become bytes, lists are walked, the rest is left to the type check."""
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            raise ValueError("Expected base64-encoded bytes") from None
    if isinstance(value, list):
        return [_decode_value(item) for item in value]
    return value


def _defaulted(field: Field) -> Any:
    from pydantic_core import core_schema as cs

    schema = _core_type(field.kind)
    return schema if field.default is REQUIRED else cs.with_default_schema(schema, default=field.default)


def _msgspec_validator(struct: Struct) -> Any:
    from pydantic_core import SchemaValidator
    from pydantic_core import core_schema as cs

    fields = {f.name: cs.typed_dict_field(_defaulted(f), required=f.default is REQUIRED) for f in struct.fields}
    return SchemaValidator(_struct_schema(struct.name, fields))


def _struct_schema(name: str, fields: dict[str, Any]) -> Any:
    """How SGLang hands a msgspec struct to pydantic: an instance of it, or a dict of its fields."""
    from pydantic_core import core_schema as cs

    def build_struct(value: Any) -> Any:
        return value

    inner = cs.no_info_after_validator_function(
        build_struct, cs.typed_dict_schema(fields, cls_name=name, extra_behavior="ignore")
    )
    return cs.union_schema([cs.is_instance_schema(type(name, (), {})), inner], mode="left_to_right")


def _dataclass_validator(struct: Struct) -> Any:
    from pydantic_core import SchemaValidator
    from pydantic_core import core_schema as cs

    marker = dataclasses.make_dataclass(struct.name, [f.name for f in struct.fields])
    fields = [cs.dataclass_field(f.name, _defaulted(f)) for f in struct.fields]
    args = cs.dataclass_args_schema(struct.name, fields, collect_init_only=False)
    return SchemaValidator(cs.dataclass_schema(marker, args, [f.name for f in struct.fields]))


def flush_timeout(route: Route, method: str, query: dict[str, str]) -> float:
    """The query parameter `timeout` of /flush_cache, seconds >= 0. Raises `Invalid`."""
    text = query.get("timeout")
    if text is None:
        return 0.0
    loc = ("query", "timeout")
    try:
        value = float(text)
    except ValueError:
        message = "Input should be a valid number, unable to parse string as a number"
        raise Invalid(route, method, [{"type": "float_parsing", "loc": loc, "msg": message, "input": text}]) from None
    if not value >= 0:
        message = "Input should be greater than or equal to 0"
        error = {"type": "greater_than_equal", "loc": loc, "msg": message, "input": text, "ctx": {"ge": 0.0}}
        raise Invalid(route, method, [error])
    return value
