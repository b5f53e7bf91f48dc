"""The FastAPI schema of a /generate body: JSON types of eight fields, told in the order of GenerateReqInput."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from fakes.engine.generate_schema import check_schema
from fakes.engine.profiles import PROFILES
from fakes.engine.routes import routes
from fakes.engine.validation import Invalid

RECORDED = json.loads(lzma.decompress((Path(__file__).parent / "generate_bodies.json.xz").read_bytes()))
NEW, OLD = "0.5.23", "0.5.12.post1"
BOTH = pytest.mark.parametrize("version", [NEW, OLD])


def taken(body: Any, version: str = NEW) -> Any:
    p = PROFILES[version]
    return check_schema(p, routes(p)["/generate"], "POST", body)


def passes(body: Any, version: str = NEW) -> bool:
    return json.dumps(taken(body, version), default=repr) == json.dumps(body, default=repr)


def errors(body: Any, version: str = NEW) -> list[Any]:
    p = PROFILES[version]
    with pytest.raises(Invalid) as invalid:
        check_schema(p, routes(p)["/generate"], "POST", body)
    return invalid.value.errors


@BOTH
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rid", ["r", ["r", "s"], None]),
        ("text", ["a", ["a"], [], None]),
        ("input_ids", [[1], [[1], [2, 3]], [], [[]], None]),
        ("sampling_params", [{}, {"top_k": 1}, [{}, {}], None]),
        ("return_logprob", [True, [False, True], None]),
        ("logprob_start_len", [0, [1, 2], None]),
        ("top_logprobs_num", [0, [1, 2], None]),
        ("stream", [True, False]),
        ("unknown", [object(), 1, "x"]),
    ],
)
def test_the_types_of_every_field_pass(version, name, values):
    for value in values:
        assert passes({name: value}, version)
    assert passes({}, version)


@BOTH
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("rid", 1, {"string_type", "list_type"}),
        ("rid", ["a", 1], {"string_type"}),
        ("text", 1, {"string_type", "list_type"}),
        ("text", [1], {"string_type"}),
        ("sampling_params", 1, {"dict_type", "list_type"}),
        ("sampling_params", "x", {"dict_type", "list_type"}),
        ("sampling_params", [1], {"dict_type"}),
        ("return_logprob", "x", {"bool_parsing", "list_type"}),
        ("return_logprob", [2], {"bool_parsing", "bool_type"}),
        ("logprob_start_len", "x", {"int_parsing", "list_type"}),
        ("logprob_start_len", [1.5], {"int_from_float", "int_type"}),
        ("top_logprobs_num", "x", {"int_parsing", "list_type"}),
        ("top_logprobs_num", ["x"], {"int_parsing", "int_type"}),
        ("stream", "x", {"bool_parsing"}),
        ("stream", None, {"bool_type"}),
    ],
)
def test_a_value_of_another_type_is_told_in_pydantics_words(version, name, value, told):
    found = errors({name: value}, version)
    assert {error["loc"][:2] for error in found} == {("body", name)}
    assert not any("url" in error for error in found)
    kinds = {error["type"] for error in found}
    assert kinds & told
    assert len(kinds) <= 2


@BOTH
@pytest.mark.parametrize(
    ("name", "value", "as_"),
    [
        ("return_logprob", "true", True),
        ("return_logprob", [1, 0], [True, False]),
        ("logprob_start_len", "3", 3),
        ("top_logprobs_num", 2.0, 2),
        ("stream", "no", False),
        ("stream", 1, True),
        ("priority", "7", 7),
    ],
)
def test_what_pydantic_takes_for_the_type_becomes_the_type(version, name, value, as_):
    given = {name: value, "other": [1]}
    assert taken(given, version) == {name: as_, "other": [1]}
    assert given[name] == value, "the body itself stays as it was"


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
def test_every_field_with_every_kind_of_value_is_told_as_the_real_one_tells_it(version):
    """validated: 0.5.17 and 0.5.23, pydantic over the real GenerateReqInput"""
    for body, (kind, expected) in RECORDED["schema"][version]:
        if kind == "ok":
            assert {name: taken(body, version)[name] for name in body} == expected, body
        else:
            told = [[error["type"], list(error["loc"][1:]), error["msg"]] for error in errors(body, version)]
            assert told == expected, body


@BOTH
@pytest.mark.parametrize("body", [None, [], [{}], 1, "x", True])
def test_a_body_that_is_no_object_is_told_at_once(version, body):
    message = "Input should be a dictionary or an instance of GenerateReqInput"
    assert errors(body, version) == [
        {
            "type": "dataclass_type",
            "loc": ("body",),
            "msg": message,
            "input": body,
            "ctx": {"class_name": "GenerateReqInput"},
        }
    ]


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        ("x", "must be list or null; got str"),
        (5, "must be list or null; got int"),
        ({}, "must be list or null; got dict"),
        (["x"], "elements must be int or list; got str"),
        ([1, 2, None], "contains non-int64 element: 'NoneType' object cannot be interpreted as an integer"),
        ([1, [2]], "contains non-int64 element: 'list' object cannot be interpreted as an integer"),
        ([2**63], "contains non-int64 element: int too big to convert"),
        ([-(2**63) - 1], "contains non-int64 element: int too big to convert"),
        ([[1], None], "row 1: must not be None"),
        ([[1], 2], "row 1: must be list; got int"),
        ([[1], [2], {}], "row 2: must be list; got dict"),
        ([[1], [2, "x"]], "row 1: contains non-int64 element: 'str' object cannot be interpreted as an integer"),
        ([["x"]], "row 0: elements must be int; got str"),
        ([[1, 1.5]], "row 0: contains non-int64 element: 'float' object cannot be interpreted as an integer"),
    ],
)
def test_token_ids_have_a_check_of_their_own_from_0_5_17(ids, problem):
    """utils/field_validators.py:66@0.5.17; before that pydantic's union of two lists says it."""
    (error,) = errors({"input_ids": ids})
    assert str(error["ctx"].pop("error")) == problem
    assert error == {
        "type": "value_error",
        "loc": ("body", "input_ids"),
        "msg": f"Value error, {problem}",
        "input": ids,
        "ctx": {},
    }
    if "too big" in problem:
        return  # plain int to pydantic
    old = errors({"input_ids": ids}, OLD)
    assert len(old) >= 2
    assert {error["loc"][:2] for error in old} == {("body", "input_ids")}


@BOTH
def test_several_errors_come_in_the_order_of_the_fields(version):
    names = ["text", "input_ids", "sampling_params", "return_logprob"]
    names += ["logprob_start_len", "top_logprobs_num", "stream", "rid"]
    bad = {"return_logprob": "x", "logprob_start_len": "x", "top_logprobs_num": "x", "stream": "x"}
    body = dict(reversed({"rid": 1, "text": 1, "input_ids": "x", "sampling_params": 1, **bad}.items()))
    order = [error["loc"][1] for error in errors(body, version)]
    assert list(dict.fromkeys(order)) == names
    assert order == sorted(order, key=names.index)


@pytest.mark.parametrize(("version", "name"), [(OLD, "dict[any,any]"), (NEW, "dict[str,any]")])
def test_the_kind_of_dict_is_a_part_of_the_error(version, name):
    """`Dict` in a dataclass, `Dict[str, Any]` in a msgspec struct."""
    locations = {error["loc"][2:] for error in errors({"sampling_params": 1}, version)}
    assert locations == {(f"list[{name}]",), (name,)}
