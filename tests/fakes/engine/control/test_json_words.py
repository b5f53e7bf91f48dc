"""Empty containers, escapes and numbers at the edges of orjson's grammar, most beside a NaN that Python would take."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.engine import json_body
from tests.fakes.engine.control.test_json_body import complaint, decode

VALUE = "unexpected character, expected a JSON value"


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("[{}, NaN]", VALUE, 5),
        ("[[], NaN]", VALUE, 5),
        ('[{"a": {}}, NaN]', VALUE, 12),
        ('{"a": [], "b": NaN}', VALUE, 15),
        ('{"a": {}, "b": NaN}', VALUE, 15),
        ("{} x", "unexpected content after document", 3),
        ("[] x", "unexpected content after document", 3),
        ("[{}]x", "unexpected content after document", 4),
        ("[[]]x", "unexpected content after document", 4),
        ("{,}", "unexpected character, expected a string key", 1),
        ("~", VALUE, 0),
        ("[1e-5, NaN]", VALUE, 7),
        ("[1E+5, NaN]", VALUE, 7),
        (r'["\ue000", NaN]', VALUE, 11),
        (r'["\n", NaN]', VALUE, 7),
        (r'"\ud800\ue000"', "invalid low surrogate in string", 1),
        (r'"\ud800\udbff"', "invalid low surrogate in string", 1),
        (r'["\udc00"]', "invalid high surrogate in string", 2),
    ],
)
def test_the_first_complaint(text: str, message: str, position: int) -> None:
    """validated: orjson 3.13.0 of the environment of 0.5.23"""
    assert complaint(text.encode()) == [message, position]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud800\udc00"', "\U00010000"),
        (r'"\ud800\udfff"', "\U000103ff"),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", float(-(2**63) - 1)),
        ("100000000000000000000", 1e20),
    ],
)
def test_the_last_that_fits(text: str, value: Any) -> None:
    """validated: orjson 3.13.0 of the environment of 0.5.23"""
    found = decode(text.encode())
    assert (type(found), found) == (type(value), value)


def test_what_is_too_deep_for_python_alone_is_refused_as_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake's own limit, where Python's parser gives up below orjson's 1024."""

    def loads(*args: Any, **more: Any) -> Any:
        raise RecursionError

    monkeypatch.setattr(json_body, "json", SimpleNamespace(loads=loads, JSONDecodeError=json.JSONDecodeError))
    assert complaint(b"[[1, 2]]") == ["depth limit exceeded", 8]
