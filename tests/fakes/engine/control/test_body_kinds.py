"""What a field of a request body takes: JSON values against every kind of field, by both validators.

The quick path must take nothing that pydantic would change or refuse, and give the same fields.
"""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine import validation
from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.requests import REQUIRED, Field, Struct, structs
from fakes.engine.routes import routes
from fakes.engine.validation import NULL, Invalid, flush_timeout, parse

VALUES: list[Any] = [
    None, True, False, 0, 1, 3, -1, 1.0, 1.5, float("inf"), "", "x", "3", "true", "abort", "all", b"raw", [], [1],
    ["x"], ["x", 1], ["QUJD"], ["QUJD", b"raw"], ["***"], [[1], [2, 3]], [[1], ["x"]], [[1], 2], [["2"]], [1, [2]],
    [None], {}, {"a": "b"}, {"a": 1}, {"a": [1, 2]}, {"a": None}, {"a": {"b": 1}},
    [{"version": "1", "start": 0, "end": 2}], [{"version": "1", "start": 0}], [{"version": 1, "start": 0, "end": 2}],
    [{"version": "1", "start": "0", "end": 2, "more": 1}],
]  # fmt: skip
SAME: Any = object()

# kind -> {repr of a value: what it becomes}; everything else is refused. SAME: it stays what it is.
TAKEN: dict[str, dict[str, Any]] = {
    "str": {"''": SAME, "'x'": SAME, "'3'": SAME, "'true'": SAME, "'abort'": SAME, "'all'": SAME, "b'raw'": "raw"},
    "int": {"True": 1, "False": 0, "0": SAME, "1": SAME, "3": SAME, "-1": SAME, "1.0": 1, "'3'": 3},
    "bool": {"True": SAME, "False": SAME, "0": False, "1": True, "1.0": True, "'true'": True},
    "mode": {"'abort'": SAME},
    "selector": {"'all'": SAME},
    "list[str]": {"[]": SAME, "['x']": SAME, "['QUJD']": SAME, "['***']": SAME, "['QUJD', b'raw']": ["QUJD", "raw"]},
    "list[list[int]]": {"[]": SAME, "[[1], [2, 3]]": SAME, "[['2']]": [[2]]},
    "dict[str,str]": {"{}": SAME, "{'a': 'b'}": SAME},
    "base64": {
        "[]": SAME,
        "['x']": None,
        "['QUJD']": [b"ABC"],
        "['QUJD', b'raw']": [b"ABC", b"raw"],
        "''": None,
    },
    "payloads": {"[]": SAME, "['x']": SAME, "['QUJD']": SAME, "['***']": SAME, "['QUJD', b'raw']": SAME},
}
NULLABLE = {"str?": "str", "bool?": "bool", "list[str]?": "list[str]"}
DICTS = ("{}", "{'a': 'b'}", "{'a': 1}", "{'a': [1, 2]}", "{'a': None}", "{'a': {'b': 1}}")
TAKEN |= {name: {"None": SAME, **TAKEN[kind]} for name, kind in NULLABLE.items()}
TAKEN["dict?"] = {"None": SAME, **dict.fromkeys(DICTS, SAME)}
TAKEN["reason?"] = {"None": SAME, **dict.fromkeys(DICTS[:-1], SAME)}
TAKEN["rid"] = {"None": SAME, **TAKEN["str"], **TAKEN["list[str]"]}
TAKEN["float?"] = {"None": SAME, "True": 1.0, "False": 0.0, "0": 0.0, "1": 1.0, "3": 3.0, "-1": -1.0, "1.0": SAME}
TAKEN["float?"] |= {"1.5": SAME, "inf": SAME, "'3'": 3.0}
TAKEN["spans?"] = {
    "None": SAME,
    "[]": SAME,
    repr([{"version": "1", "start": 0, "end": 2}]): SAME,
    repr([{"version": "1", "start": "0", "end": 2, "more": 1}]): [{"version": "1", "start": 0, "end": 2}],
}
del TAKEN["base64"]["['x']"], TAKEN["base64"]["''"]


@pytest.fixture(autouse=True)
def _fresh_validators() -> None:
    validation._validator.cache_clear()


def parsed(version: str, struct: Struct, body: Any) -> Any:
    p = PROFILES[version]
    return parse(p, routes(p)["/pause_generation"], "POST", struct, body)


def same(found: Any, wanted: Any) -> bool:
    return type(found) is type(wanted) and found == wanted


@pytest.mark.parametrize("version", ["0.5.23", "0.5.12.post1"])
@pytest.mark.parametrize("kind", TAKEN)
def test_what_every_kind_of_field_takes(kind: Any, version: str) -> None:
    struct = Struct("T", (Field("first", "int", 5), Field("x", kind), Field("last", "str?", "d")))
    for value in VALUES:
        wanted = TAKEN[kind].get(repr(value), Invalid)
        if wanted is Invalid:
            with pytest.raises(Invalid) as invalid:
                parsed(version, struct, {"x": value})
            assert {error["loc"][0] for error in invalid.value.errors} == {"body"}
            continue
        found = parsed(version, struct, {"x": value, "unknown": 1})
        assert list(found) == ["first", "x", "last"]
        assert (found["first"], found["last"]) == (5, "d")
        assert found["x"] == (value if wanted is SAME else wanted), (kind, value)


@pytest.mark.parametrize("version", ORDER)
def test_the_quick_way_gives_what_pydantic_gives(version: str) -> None:
    """Whenever it gives anything at all: for every field of every request of the version."""
    p = PROFILES[version]
    route = routes(p)["/pause_generation"]
    taken = 0
    for struct in structs(p).values():
        least: dict[str, Any] = {}
        for field in struct.fields:
            if field.default is REQUIRED:
                least[field.name] = next(v for v in VALUES if validation._quick(Struct("T", (field,)), {field.name: v}))
        for field in struct.fields:
            for value in VALUES:
                body = {**least, field.name: value}
                quick = validation._quick(struct, body)
                if quick is not None:
                    taken += 1
                    slow = validation._slow(p, route, "POST", struct, body)
                    assert quick == slow
    assert taken > 300


@pytest.mark.parametrize("version", ["0.5.23", "0.5.12.post1"])
def test_a_required_field_that_is_missing_is_told(version: str) -> None:
    struct = Struct("T", (Field("a", "str"), Field("b", "int", 1), Field("c", "str")))
    with pytest.raises(Invalid) as invalid:
        parsed(version, struct, {"a": "x"})
    missing = [error for error in invalid.value.errors if error["type"] == "missing"]
    assert [error["loc"][-1] for error in missing] == ["c"]
    assert not any("url" in error for error in invalid.value.errors)


def test_nothing_null_and_what_is_no_object() -> None:
    struct = Struct("T", (Field("a", "str", "d"),))
    for version in ("0.5.23", "0.5.12.post1"):
        with pytest.raises(Invalid) as nothing:
            parsed(version, struct, None)
        assert [error["type"] for error in nothing.value.errors] == ["missing"]
        for body in (NULL, 1, "x", []):
            with pytest.raises(Invalid) as invalid:
                parsed(version, struct, body)
            assert "missing" not in {error["type"] for error in invalid.value.errors}
    p = PROFILES["0.5.23"]
    optional = routes(p)["/weights_checker"]
    assert optional.body_optional
    assert parse(p, optional, "POST", struct, None) is None
    assert parse(p, optional, "POST", struct, NULL) is None
    assert parse(p, optional, "POST", struct, {}) == {"a": "d"}


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, 0.0), ("0", 0.0), ("-0.0", 0.0), ("2.5", 2.5), ("1e3", 1000.0), (" 7 ", 7.0)]
)
def test_a_flush_timeout(text: str | None, seconds: float) -> None:
    route = routes(PROFILES["0.5.23"])["/flush_cache"]
    assert flush_timeout(route, "POST", {} if text is None else {"timeout": text}) == seconds


@pytest.mark.parametrize(
    ("text", "kind"),
    [("x", "float_parsing"), ("", "float_parsing"), ("-1", "greater_than_equal"), ("-0.01", "greater_than_equal")],
)
def test_a_flush_timeout_that_is_none(text: str, kind: str) -> None:
    route = routes(PROFILES["0.5.23"])["/flush_cache"]
    with pytest.raises(Invalid) as invalid:
        flush_timeout(route, "POST", {"timeout": text})
    (error,) = invalid.value.errors
    assert (error["type"], error["loc"], error["input"]) == (kind, ("query", "timeout"), text)
