"""A request body's JSON as FastAPI reads it: the value, or a 400 in the words of SGLang's parser.

From 0.5.17 that is orjson, stricter than Python's json module in NaN, depth, lone surrogates and numbers that do not
fit; up to 0.5.12 the json module (entrypoints/http_server.py:472@0.5.23). orjson itself is not needed: Python's parser
reads what is plain, and a small scanner finds orjson's words for the rest.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.routes import Route
from fakes.engine.validation import Invalid

MAX_DEPTH = 1024
"""Of arrays and objects in each other, as orjson counts."""


class Unreadable(Exception):
    """A body that breaks the parser itself: "There was an error parsing the body" (fastapi/routing.py:514)."""


def is_json(content_type: str) -> bool:
    """Whether FastAPI reads a body as JSON; anything else stays bytes, which no schema takes
    (fastapi/routing.py:474)."""
    kind, _, subtype = content_type.partition(";")[0].strip().lower().partition("/")
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))


def decode_json(p: EngineProfile, route: Route, method: str, raw: bytes) -> Any:
    """The JSON value of a raw body; None when it is empty. `Invalid` for text that is not JSON, `Unreadable`."""
    if not raw:
        return None
    try:
        return _loads_python(raw) if p.structs == "dataclass" else _loads_strict(raw)
    except _Fault as fault:
        message, position = fault.args
    ctx = {"error": message}
    entry = {"type": "json_invalid", "loc": ("body", position), "msg": "JSON decode error", "input": {}, "ctx": ctx}
    raise Invalid(route, method, [entry])


class _Fault(Exception):
    """(message, position in characters)."""


def _loads_python(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise _Fault(error.msg, error.pos) from None
    except (ValueError, RecursionError) as error:  # not UTF-8, an integer of more than 4300 digits; too deep
        raise Unreadable(str(error)) from None


_UNUSUAL = re.compile(r"\\u[dD][89a-fA-F]|\d{19}|[eE]\+?\d{3}|NaN|Infinity")
"""What Python's parser takes and orjson does not, or not so."""


def _loads_strict(raw: bytes) -> Any:
    if raw.startswith(b"\xef\xbb\xbf"):
        raise _Fault("UTF-8 byte order mark (BOM) is not supported", 0)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise _Fault("str is not valid UTF-8: surrogates not allowed", 0) from None
    if _UNUSUAL.search(text) is None:
        try:
            return json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            pass
    _scan(text)
    try:
        return json.loads(text, parse_int=_integer)
    except (json.JSONDecodeError, RecursionError):
        raise _Fault("depth limit exceeded", len(text)) from None  # between Python's limit and orjson's


def _integer(digits: str) -> int | float:
    """orjson takes what does not fit into 64 bits for a float."""
    value = int(digits) if len(digits) <= 20 else None
    return value if value is not None and -(2**63) <= value < 2**64 else float(digits)


_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u([0-9a-fA-F]{4}))')
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_DIGITS = re.compile(r"[0-9]*")
_LITERALS = {"n": "null", "t": "true", "f": "false"}
_ENDS = {"[": "]", "{": "}"}


def _scan(text: str) -> None:
    """`_Fault` with orjson's first complaint, None when it has none."""
    opened: list[str] = []
    at, wants, size = 0, "value", len(text)
    while True:
        at = _space(text, at)
        if at >= size:
            if wants == "end":
                return
            if not text.strip(" \t\n\r"):
                raise _Fault("input data is empty", 0)
            raise _Fault("unexpected end of data", at)
        char = text[at]
        if wants == "end":
            raise _Fault("unexpected content after document", at)
        if wants == "comma":
            if char == _ENDS[opened[-1]]:
                opened.pop()
                at += 1
            elif char == ",":
                at = _after_comma(text, at, opened[-1])
                wants = "key" if opened[-1] == "{" else "value"
                continue
            else:
                raise _Fault(f"unexpected character, expected ',' or '{_ENDS[opened[-1]]}'", at)
        elif wants in ("key", "first key"):
            if char == "}" and wants == "first key":
                opened.pop()
                at += 1
            elif char == '"':
                at = _space(text, _string(text, at))
                if at >= size:
                    raise _Fault("unexpected end of data", at)
                if text[at] != ":":
                    raise _Fault("unexpected character, expected ':' after key", at)
                at, wants = at + 1, "value"
                continue
            else:
                raise _Fault("unexpected character, expected a string key", at)
        elif char in _ENDS:
            if len(opened) >= MAX_DEPTH:
                raise _Fault("depth limit exceeded", at + 1)
            opened.append(char)
            at, wants = at + 1, "first key" if char == "{" else "first value"
            continue
        elif char == "]" and wants == "first value":
            opened.pop()
            at += 1
        else:
            at = _value(text, at)
        wants = "comma" if opened else "end"


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _after_comma(text: str, at: int, opened: str) -> int:
    after = _space(text, at + 1)
    if text[after : after + 1] == _ENDS[opened]:
        raise _Fault("trailing comma is not allowed", at)
    return after


def _value(text: str, at: int) -> int:
    char = text[at]
    if char == '"':
        return _string(text, at)
    if char in _LITERALS:
        word = _LITERALS[char]
        if text.startswith(word, at):
            return at + len(word)
        if word.startswith(text[at:]):
            raise _Fault("unexpected end of data", len(text))
        raise _Fault(f"invalid literal, expected '{word}'", at)
    if char in "+-.0123456789":
        return _number(text, at)
    raise _Fault("unexpected character, expected a JSON value", at)


def _string(text: str, at: int) -> int:
    """Where the string that begins at `at` ends."""
    start = at = at + 1
    high = False
    while True:
        plain = _PLAIN.match(text, at)
        assert plain is not None
        if high and plain.end() > at:
            raise _Fault("no low surrogate in string", start)
        at = plain.end()
        if at >= len(text):
            raise _Fault("unexpected end of data", len(text))
        if text[at] == '"':
            if high:
                raise _Fault("no low surrogate in string", start)
            return at + 1
        if text[at] != "\\":
            raise _Fault("unexpected control character in string", at)
        escape = _ESCAPE.match(text, at)
        if escape is None:
            if _CUT_ESCAPE.fullmatch(text, at):
                raise _Fault("unexpected end of data", len(text))
            if high:
                unicode = text.startswith("u", at + 1)
                raise _Fault("invalid escape in string" if unicode else "no low surrogate in string", start)
            raise _Fault("invalid escaped sequence in string", at)
        unit = int(escape[1], 16) if escape[1] else 0
        if high:
            if not escape[1]:
                raise _Fault("no low surrogate in string", start)
            if not 0xDC00 <= unit < 0xE000:
                raise _Fault("invalid low surrogate in string", start)
            high = False
        elif 0xDC00 <= unit < 0xE000:
            raise _Fault("invalid high surrogate in string", at)
        elif 0xD800 <= unit < 0xDC00:
            high, start = True, at
        at = escape.end()


def _number(text: str, at: int) -> int:
    start = at
    if text[at] == "-":
        at += 1
    end = _digits(text, at, "no digit after sign")
    if text[at] == "0" and end > at + 1:
        raise _Fault("number with leading zero is not allowed", at)
    at = end
    if text[at : at + 1] == ".":
        at = _digits(text, at + 1, "no digit after decimal point")
    if text[at : at + 1] in ("e", "E"):
        at += 2 if text[at + 1 : at + 2] in ("+", "-") else 1
        at = _digits(text, at, "no digit after exponent sign")
    if float(text[start:at]) in (float("inf"), float("-inf")):
        raise _Fault("number is infinity when parsed as double", start)
    return at


def _digits(text: str, at: int, missing: str) -> int:
    found = _DIGITS.match(text, at)
    assert found is not None
    if found.end() == at:
        raise _Fault("unexpected end of data", len(text)) if at >= len(text) else _Fault(missing, at)
    return found.end()
