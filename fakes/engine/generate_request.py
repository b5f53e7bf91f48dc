"""The body of /generate: schema, contract gate, and what the tokenizer manager refuses before it sends anything.

Three layers, in SGLang's order: the FastAPI schema (400, ErrorResponse), from 0.5.22 the JSON contract
(400, `{"error": text}`, entrypoints/api_contract.py:12@0.5.23), then ValueErrors of the tokenizer manager (400,
`{"error": {"message": text}}`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from fakes.engine import messages as m
from fakes.engine.generate_batch import Item
from fakes.engine.profiles import ORDER, EngineProfile
from fakes.engine.request import Sampling
from fakes.engine.routes import Route
from fakes.engine.validation import Invalid

SAMPLING_FIELDS = (
    "max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "n", "json_schema", "regex",
    "ebnf", "structural_tag", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim",
    "stream_interval", "logit_bias", "sampling_seed", "custom_params", "beam_width", "watermark", "choice",
)  # fmt: skip
"""sglang/api/v1/api_types.py@0.5.23 _FIELDS_SamplingParams, in its order; 0.5.22 has no `choice`."""

_GATE: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(
        ("max_new_tokens", "top_k", "min_new_tokens", "n", "stream_interval", "sampling_seed", "beam_width"),
        ((int,), "i64"),
    ),
    **dict.fromkeys(
        ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"),
        ((int, float), "f64"),
    ),
    **dict.fromkeys(
        ("ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"), ((bool,), "a boolean")
    ),
    **dict.fromkeys(("json_schema", "regex", "ebnf", "structural_tag"), ((str,), "a string")),
}
"""Sampling parameter -> the JSON types that it may have, and serde's word for them."""


class Refused(Exception):
    """A 400 with a body of its own, the only argument."""

    @property
    def body(self) -> Any:
        """The JSON value that is answered."""
        return self.args[0]


def check_schema(p: EngineProfile, route: Route, method: str, body: Any) -> dict[str, Any]:
    """The body as a dict of known JSON types, or `Invalid`."""
    if not isinstance(body, dict):
        message = "Input should be a dictionary or an instance of GenerateReqInput"
        ctx = {"class_name": "GenerateReqInput"}
        raise Invalid(
            route, method, [{"type": "dataclass_type", "loc": ("body",), "msg": message, "input": body, "ctx": ctx}]
        )
    errors: list[Any] = []
    ids = body.get("input_ids")
    if ids is not None and p.structs == "msgspec":
        problem = _ids_problem(ids)
        if problem:
            error = ValueError(problem)
            errors.append(
                {
                    "type": "value_error",
                    "loc": ("body", "input_ids"),
                    "msg": f"Value error, {problem}",
                    "input": ids,
                    "ctx": {"error": error},
                }
            )
    elif ids is not None:
        errors += _pydantic(p, "input_ids", ids)
    for name in ("rid", "text", "sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num"):
        if name in body and not _plain(name, body[name]):
            errors += _pydantic(p, name, body[name])
    if "stream" in body and type(body["stream"]) is not bool:
        errors += _pydantic(p, "stream", body["stream"])
    if errors:
        order = list(_ORDER)
        raise Invalid(route, method, sorted(errors, key=lambda e: order.index(e["loc"][1])))
    return body


_ORDER = (
    "rid", "text", "input_ids", "sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num", "stream",
)  # fmt: skip


def _ids_problem(ids: Any) -> str:
    """utils/field_validators.py:66@0.5.17."""
    if not isinstance(ids, list):
        return f"must be list or null; got {type(ids).__name__}"
    if ids and isinstance(ids[0], list):
        for index, row in enumerate(ids):
            if not isinstance(row, list):
                return f"row {index}: must be list; got {type(row).__name__}"
            for token in row:
                if not isinstance(token, int):
                    kind = type(token).__name__
                    return (
                        f"row {index}: contains non-int64 element: {kind!r} object cannot be interpreted as an integer"
                    )
        return ""
    for token in ids:
        if not isinstance(token, int):
            return f"elements must be int or list; got {type(token).__name__}"
    return ""


def _plain(name: str, value: Any) -> bool:
    """Whether a value has one of the field's JSON types without any coercion."""
    if value is None:
        return True
    one: dict[str, type] = {"rid": str, "text": str, "sampling_params": dict, "return_logprob": bool}
    kind = one.get(name, int)
    items = value if isinstance(value, list) else [value]
    return all(type(item) is kind for item in items)


def _pydantic(p: EngineProfile, name: str, value: Any) -> list[Any]:
    """pydantic's own errors for one field of GenerateReqInput; [] when it takes the value after all."""
    from pydantic import TypeAdapter, ValidationError

    params: Any = dict[Any, Any] if p.structs == "dataclass" else dict[str, Any]
    types: dict[str, Any] = {
        "rid": str | list[str] | None,
        "text": list[str] | str | None,
        "input_ids": list[list[int]] | list[int] | None,
        "sampling_params": list[params] | params | None,  # type: ignore[valid-type]
        "return_logprob": list[bool] | bool | None,
        "logprob_start_len": list[int] | int | None,
        "top_logprobs_num": list[int] | int | None,
        "stream": bool,
    }
    try:
        TypeAdapter(types[name]).validate_python(value)
    except ValidationError as error:
        return [{**item, "loc": ("body", name, *item["loc"])} for item in error.errors(include_url=False)]
    return []


def check_contract(p: EngineProfile, body: Mapping[str, Any]) -> None:
    """The JSON contract of 0.5.22 and later, as far as sampling parameters and the common keys go. Raises `Refused`."""
    stream = body.get("stream")
    if stream is not None and type(stream) is not bool:
        raise Refused({"error": f"invalid type: {_unexpected(stream)}, expected a boolean"})
    params = body.get("sampling_params")
    for sampling in params if isinstance(params, list) else [params]:
        if sampling is not None:
            _contract_sampling(sampling, SAMPLING_FIELDS if p.version != "0.5.22" else SAMPLING_FIELDS[:-1])


def _contract_sampling(sampling: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    for name, value in sampling.items():
        if name not in fields:
            listed = ", ".join(f"`{field}`" for field in fields)
            raise Refused({"error": m.UNKNOWN_SAMPLING(name=name, fields=listed)})
        if value is not None and name in _GATE and type(value) not in _GATE[name][0]:
            raise Refused({"error": f"invalid type: {_unexpected(value)}, expected {_GATE[name][1]}"})


def _unexpected(value: Any) -> str:
    """serde's words for a JSON value (api_types.py@0.5.23)."""
    if isinstance(value, bool):
        return f"boolean `{'true' if value else 'false'}`"
    if isinstance(value, int):
        return f"integer `{value}`"
    if isinstance(value, float):
        return f"floating point `{value}`"
    if isinstance(value, str):
        return f'string "{value}"'
    return "sequence" if isinstance(value, list) else "map"


def _refuse(message: m.Message, **values: Any) -> ValueError:
    return ValueError(message(**values))


def prepare(
    p: EngineProfile, item: Item, context_len: int, input_limit: int, max_req_len: int
) -> tuple[list[int], Sampling]:
    """Prompt and sampling of one item, checked as the tokenizer manager does. ValueError as SGLang raises it.

    context_len: max_position_embeddings. input_limit, max_req_len: what the scheduler's memory allows, in tokens.
    """
    if item.prompt is None:
        raise _refuse(m.TEXT_REFUSED)
    given, sampling = len(item.prompt), item.sampling
    if given >= context_len:
        raise _refuse(m.TOO_LONG, given=given, limit=context_len)
    new = sampling.get("max_new_tokens")
    if new is not None and given + new > context_len:
        raise _refuse(m.TOO_MANY, limit=context_len, total=given + new, given=given, new=new)
    parsed = _sampling(p, sampling)
    if given >= input_limit:
        raise _refuse(m.OVER_LIMIT, given=given, limit=input_limit)
    if item.logprobs is not None and item.logprobs.start > given:
        raise _refuse(m.LOGPROB_START, start=item.logprobs.start, given=given)
    room = max_req_len - given - 1
    return list(item.prompt), dataclasses.replace(parsed, max_new_tokens=min(parsed.max_new_tokens, room))


_DEFAULTS: dict[str, Any] = {
    "max_new_tokens": 128, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "frequency_penalty": 0.0,
    "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0, "stop_token_ids": (), "ignore_eos": False,
    "sampling_seed": None,
}  # fmt: skip
_WHEN_NULL = {**_DEFAULTS, "max_new_tokens": 1 << 30}
"""A null is the default, but for `max_new_tokens`: as many as fit (managers/scheduler.py:2695@0.5.23)."""

_VERIFIED: tuple[tuple[str, Callable[[Any], bool], m.Message], ...] = (
    ("temperature", lambda v: v >= 0, m.BAD_TEMPERATURE_12),
    ("temperature", lambda v: math.isfinite(v) and v >= 0, m.BAD_TEMPERATURE),
    ("top_p", lambda v: 0.0 < v <= 1.0, m.BAD_TOP_P),
    ("min_p", lambda v: 0.0 <= v <= 1.0, m.BAD_MIN_P),
    ("top_k", lambda v: v == -1 or v >= 1, m.BAD_TOP_K),
    ("frequency_penalty", lambda v: -2.0 <= v <= 2.0, m.BAD_FREQUENCY),
    ("presence_penalty", lambda v: -2.0 <= v <= 2.0, m.BAD_PRESENCE),
    ("repetition_penalty", lambda v: 0.0 < v <= 2.0, m.BAD_REPETITION),
    ("min_new_tokens", lambda v: v >= 0, m.BAD_MIN_TOKENS),
    ("max_new_tokens", lambda v: v >= 0, m.BAD_MAX_TOKENS),
)
"""SamplingParams.verify, in its order (sampling/sampling_params.py:230@0.5.23)."""


_LATE = {"choice": (), "watermark": ("0.5.22", "0.5.23"), "beam_width": ORDER[ORDER.index("0.5.19") :]}
"""What SamplingParams has only in some versions; `choice` is in the JSON contract alone."""


def _needs_tokenizer(given: Mapping[str, Any]) -> None:
    """From 0.5.17 what needs a tokenizer is refused without one (sampling/sampling_params.py:315@0.5.17)."""
    for name in ("stop", "stop_regex"):
        value = given.get(name)
        if value:
            raise _refuse(m.NO_STOP_TEXT, name=name, value=[value] if isinstance(value, str) else value)
    if given.get("min_new_tokens"):
        raise _refuse(m.NO_MIN_TOKENS, value=given["min_new_tokens"])


def _sampling(p: EngineProfile, given: Mapping[str, Any]) -> Sampling:
    for name in given:
        if name not in SAMPLING_FIELDS or p.version not in _LATE.get(name, ORDER):
            raise TypeError(f"Unexpected keyword argument '{name}'")
    value = {name: given.get(name, default) for name, default in _DEFAULTS.items()}
    value = {name: _WHEN_NULL[name] if found is None else found for name, found in value.items()}
    for name, fits, message in _VERIFIED:
        if p.version in message.versions and not fits(value[name]):
            raise _refuse(message, value=value[name])
    if value["min_new_tokens"] > value["max_new_tokens"]:
        raise _refuse(m.MIN_OVER_MAX, value=value["min_new_tokens"], limit=value["max_new_tokens"])
    if p.structs == "msgspec":
        _needs_tokenizer(given)
    return Sampling(
        max_new_tokens=int(value["max_new_tokens"]),
        temperature=float(value["temperature"]),
        top_p=float(value["top_p"]),
        top_k=int(value["top_k"]),
        min_new_tokens=int(value["min_new_tokens"]),
        stop_token_ids=frozenset(value["stop_token_ids"]),
        ignore_eos=bool(value["ignore_eos"]),
        seed=value["sampling_seed"],
    )
