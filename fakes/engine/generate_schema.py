"""The FastAPI schema of a /generate body: every field of GenerateReqInput, in pydantic's own words.

A table of types (`generate_fields`) that becomes pydantic's when a value is not plainly of its field's JSON type.
"""

from __future__ import annotations

import ast
import functools
from typing import Any, Literal, Union

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.generate_fields import typed_structs
from fakes.engine.profiles import PROFILES
from fakes.engine.routes import Route
from fakes.engine.validation import Invalid


def check_schema(p: EngineProfile, route: Route, method: str, body: Any) -> dict[str, Any]:
    """The fields of the body as pydantic takes them ("3" becomes 3), unknown keys as they are; or `Invalid`."""
    if not isinstance(body, dict):
        message = "Input should be a dictionary or an instance of GenerateReqInput"
        ctx = {"class_name": "GenerateReqInput"}
        raise Invalid(
            route, method, [{"type": "dataclass_type", "loc": ("body",), "msg": message, "input": body, "ctx": ctx}]
        )
    checked: list[tuple[int, list[Any]]] = []
    taken = body
    for name, place in _places(p.version).items():
        if name not in body or _plain(name, body[name]):
            continue
        value, errors = _input_ids(p, body[name]) if name == "input_ids" else _pydantic(p, name, body[name])
        if errors:
            checked.append((place, errors))
        elif value is not body[name]:
            taken = {**taken, name: value}
    if checked:
        raise Invalid(route, method, [error for _, errors in checked for error in errors])
    return taken


@functools.cache
def _places(version: str) -> dict[str, int]:
    fields = typed_structs(PROFILES[version])["GenerateReqInput"]
    return {field.name: place for place, field in enumerate(fields)}


_PLAIN: dict[str, type] = {
    "rid": str, "text": str, "sampling_params": dict, "return_logprob": bool, "logprob_start_len": int,
    "top_logprobs_num": int,
}  # fmt: skip


def _plain(name: str, value: Any) -> bool:
    """Whether a value has one of the field's JSON types without any coercion; False where that is not known here."""
    if name == "stream":
        return type(value) is bool
    if name not in _PLAIN:
        return False
    if value is None:
        return True
    items = value if isinstance(value, list) else [value]
    return all(type(item) is _PLAIN[name] for item in items)


def _input_ids(p: EngineProfile, ids: Any) -> tuple[Any, list[Any]]:
    if ids is None:
        return None, []
    if p.structs == "dataclass":
        return _pydantic(p, "input_ids", ids)
    problem = _ids_problem(ids)
    if not problem:
        return ids, []
    ctx = {"error": ValueError(problem)}
    text = f"Value error, {problem}"
    return ids, [{"type": "value_error", "loc": ("body", "input_ids"), "msg": text, "input": ids, "ctx": ctx}]


def _ids_problem(ids: Any) -> str:
    """utils/field_validators.py:36@0.5.17: a list of 64-bit integers, or of such lists."""
    if not isinstance(ids, list):
        return f"must be list or null; got {type(ids).__name__}"
    if not ids or isinstance(ids[0], int):
        return _row_problem(ids)
    if not isinstance(ids[0], list):
        return f"elements must be int or list; got {type(ids[0]).__name__}"
    for index, row in enumerate(ids):
        problem = _row_problem(row)
        if problem:
            return f"row {index}: {problem}"
    return ""


def _row_problem(row: Any) -> str:
    if row is None:
        return "must not be None"
    if not isinstance(row, list):
        return f"must be list; got {type(row).__name__}"
    if row and not isinstance(row[0], int):
        return f"elements must be int; got {type(row[0]).__name__}"
    for token in row:
        if not isinstance(token, int):
            kind = type(token).__name__
            return f"contains non-int64 element: {kind!r} object cannot be interpreted as an integer"
        if not -(2**63) <= token < 2**63:
            return "contains non-int64 element: int too big to convert"
    return ""


def _pydantic(p: EngineProfile, name: str, value: Any) -> tuple[Any, list[Any]]:
    """The value as pydantic takes it, and its errors when it does not."""
    from pydantic import ValidationError

    try:
        return _adapter(p.version, name).validate_python(value), []
    except ValidationError as error:
        return value, [{**item, "loc": ("body", name, *item["loc"])} for item in error.errors(include_url=False)]


@functools.cache
def _adapter(version: str, name: str) -> Any:
    from pydantic import TypeAdapter

    p = PROFILES[version]
    notation = typed_structs(p)["GenerateReqInput"][_places(version)[name]].type
    if p.structs == "dataclass":  # a plain Dict there, whose keys nobody looks at (managers/io_struct.py@0.5.12.post1)
        notation = notation.replace("dict[str, Any]", "dict[Any, Any]")
    return TypeAdapter(_type(ast.parse(notation, mode="eval").body))


_NAMES: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "bytes": bytes, "Any": Any}


def _type(node: ast.expr) -> Any:
    """A type of the table's notation. Media, hints and modalities pass unchecked: no text model reads them."""
    if isinstance(node, ast.BinOp):
        return _union(_alternatives(node))
    if isinstance(node, ast.Constant):
        return None if node.value is None else Literal[node.value]
    if isinstance(node, ast.Name):
        return _NAMES.get(node.id, Any)
    assert isinstance(node, ast.Subscript)
    assert isinstance(node.value, ast.Name)
    if node.value.id == "list":
        return list[_type(node.slice)]  # type: ignore[misc]  # a type made at run time
    assert isinstance(node.slice, ast.Tuple)
    key, item = map(_type, node.slice.elts)
    return dict[key, item]  # type: ignore[valid-type]  # a type made at run time


def _alternatives(node: ast.expr) -> list[ast.expr]:
    return [*_alternatives(node.left), node.right] if isinstance(node, ast.BinOp) else [node]


def _union(nodes: list[ast.expr]) -> Any:
    """One type of several; its words are one Literal, in the place of the first."""
    words = tuple(node.value for node in nodes if isinstance(node, ast.Constant) and node.value is not None)
    types: list[Any] = []
    for node in nodes:
        word = isinstance(node, ast.Constant) and node.value is not None
        found = Literal[words] if word else _type(node)  # type: ignore[valid-type]  # a type made at run time
        if found not in types:
            types.append(found)
    return functools.reduce(lambda one, other: Union[one, other], types)  # noqa: UP007  # `|` does not take Any
