"""The body of /generate: schema, contract gate, and what the tokenizer manager refuses before it sends anything.

Three layers, in SGLang's order: the FastAPI schema (400, ErrorResponse), from 0.5.22 the JSON contract
(400, `{"error": text}`, entrypoints/api_contract.py:12@0.5.23), then ValueErrors of the tokenizer manager (400,
`{"error": {"message": text}}`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fakes.engine import messages as m
from fakes.engine.profiles import EngineProfile
from fakes.engine.request import Logprobs, Sampling
from fakes.engine.routes import Route
from fakes.engine.validation import Invalid

SAMPLING_FIELDS = (
    "max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "n", "json_schema", "regex",
    "ebnf", "structural_tag", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim",
    "stream_interval", "logit_bias", "sampling_seed", "custom_params", "beam_width", "watermark", "choice",
)  # fmt: skip
"""sglang/api/v1/api_types.py@0.5.23 _FIELDS_SamplingParams, in its order; 0.5.22 has no `choice`."""

_GATE_INT = {"max_new_tokens", "top_k", "min_new_tokens", "n", "stream_interval", "sampling_seed", "beam_width"}
_GATE_FLOAT = {"temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"}
_GATE_BOOL = {"ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"}
_GATE_TEXT = {"json_schema", "regex", "ebnf", "structural_tag"}


class Refused(Exception):
    """A 400 with a body of its own."""

    def __init__(self, body: Any) -> None:
        super().__init__("refused")
        self.body = body


@dataclass(slots=True)
class Item:
    """One prompt of a request."""

    rid: str | None
    prompt: list[int] | None
    text: str | None
    sampling: dict[str, Any]
    logprobs: Logprobs | None
    extra_key: str | None


@dataclass(slots=True)
class GenerateRequest:
    """A checked body: its prompts, whether the reply is a list, and whether it streams."""

    items: list[Item]
    single: bool
    stream: bool
    n: int


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
    if "stream" in body and body["stream"] is not None and type(body["stream"]) is not bool:
        raise Refused({"error": f"invalid type: {_unexpected(body['stream'])}, expected a boolean"})
    params = body.get("sampling_params")
    for sampling in params if isinstance(params, list) else [params]:
        if sampling is not None:
            _contract_sampling(sampling, SAMPLING_FIELDS if p.version != "0.5.22" else SAMPLING_FIELDS[:-1])


def _contract_sampling(sampling: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    for name, value in sampling.items():
        if name not in fields:
            listed = ", ".join(f"`{field}`" for field in fields)
            raise Refused({"error": m.UNKNOWN_SAMPLING(name=name, fields=listed)})
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name in _GATE_INT and not (number and isinstance(value, int)):
            raise Refused({"error": f"invalid type: {_unexpected(value)}, expected i64"})
        if name in _GATE_FLOAT and not number:
            raise Refused({"error": f"invalid type: {_unexpected(value)}, expected f64"})
        if name in _GATE_BOOL and not isinstance(value, bool):
            raise Refused({"error": f"invalid type: {_unexpected(value)}, expected a boolean"})
        if name in _GATE_TEXT and not isinstance(value, str):
            raise Refused({"error": f"invalid type: {_unexpected(value)}, expected a string"})


def _unexpected(value: Any) -> str:
    """serde's words for a JSON value (api_types.py@0.5.23)."""
    if value is None:
        return "null"
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


def build(body: Mapping[str, Any]) -> GenerateRequest:
    """Split a body into its prompts (managers/io_struct.py normalize_batch_and_arguments). ValueError as SGLang
    raises it."""
    ids, text = body.get("input_ids"), body.get("text")
    if ids is None and text is None:
        raise _refuse(m.NO_INPUT)
    if ids is not None and not ids:
        raise _refuse(m.EMPTY_INPUT)
    batch = isinstance(ids[0], list) if ids is not None else isinstance(text, list)
    count = len(ids if ids is not None else text) if batch else 1  # type: ignore[arg-type]

    def each(name: str, default: Any = None) -> list[Any]:
        value = body.get(name, default)
        return list(value) if batch and isinstance(value, list) and len(value) == count else [value] * count

    if batch and any(not row for row in ids or ()):
        raise _refuse(m.EMPTY_INPUT)
    prompts = list(ids) if batch and ids is not None else [ids] * count
    texts = list(text) if batch and isinstance(text, list) else [text] * count
    samplings = [dict(s or {}) for s in each("sampling_params")]
    wanted, starts, tops = each("return_logprob"), each("logprob_start_len"), each("top_logprobs_num")
    tokens, keys = each("token_ids_logprob"), each("extra_key")
    if not batch:
        tokens = [body.get("token_ids_logprob")]
    rids = _rids(body.get("rid"), count, batch)
    items = []
    for index in range(count):
        logprobs = None
        if wanted[index]:
            chosen = tokens[index]
            logprobs = Logprobs(
                start=-1 if starts[index] is None else int(starts[index]),
                top=int(tops[index] or 0),
                token_ids=None if chosen is None else tuple(chosen),
            )
        items.append(Item(rids[index], prompts[index], texts[index], samplings[index], logprobs, keys[index]))
    n = int(samplings[0].get("n") or 1)
    return GenerateRequest(items, not batch and n == 1, bool(body.get("stream", False)), n)


def _rids(rid: Any, count: int, batch: bool) -> list[str | None]:
    if rid is None:
        return [None] * count
    if isinstance(rid, list):
        twice = {r for r in rid if rid.count(r) > 1}
        if twice:
            raise ValueError(f"Duplicate request IDs detected within the request: {twice}")
        return list(rid)
    return [f"{rid}_{index}" for index in range(count)] if batch else [rid]


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
    if isinstance(new, int) and given + new > context_len:
        raise _refuse(m.TOO_MANY, limit=context_len, total=given + new, given=given, new=new)
    parsed = _sampling(p, sampling)
    if given >= input_limit:
        raise _refuse(m.OVER_LIMIT, given=given, limit=input_limit)
    if item.logprobs is not None and item.logprobs.start > given:
        raise _refuse(m.LOGPROB_START, start=item.logprobs.start, given=given)
    room = max(max_req_len - given - 1, 0)
    if parsed.max_new_tokens > room:
        parsed = Sampling(**{**{f: getattr(parsed, f) for f in parsed.__slots__}, "max_new_tokens": room})
    return list(item.prompt), parsed


@functools.cache
def _known_sampling(version: str) -> frozenset[str]:
    """The fields of SamplingParams; an unknown one is a TypeError in the HTTP process (sampling/sampling_params.py)."""
    names = set(SAMPLING_FIELDS) - {"choice"}
    if version not in ("0.5.22", "0.5.23"):
        names.discard("watermark")
    if version in ("0.5.12.post1", "0.5.17", "0.5.18"):
        names.discard("beam_width")
    return frozenset(names)


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
        if name not in _known_sampling(p.version):
            raise TypeError(f"Unexpected keyword argument '{name}'")
    temperature = given.get("temperature")
    temperature = 1.0 if temperature is None else temperature
    if not (isinstance(temperature, int | float) and math.isfinite(temperature) and temperature >= 0):
        known = m.BAD_TEMPERATURE if p.version in m.BAD_TEMPERATURE.versions else m.BAD_TEMPERATURE_12
        raise _refuse(known, value=temperature)
    top_p, top_k = given.get("top_p"), given.get("top_k")
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise _refuse(m.BAD_TOP_P, value=top_p)
    if top_k is not None and top_k != -1 and top_k < 1:
        raise _refuse(m.BAD_TOP_K, value=top_k)
    new = given.get("max_new_tokens", 128)
    new = 128 if new is None else new
    if new < 0:
        raise _refuse(m.BAD_MAX_TOKENS, value=new)
    if p.structs == "msgspec":
        _needs_tokenizer(given)
    stops = given.get("stop_token_ids") or ()
    return Sampling(
        max_new_tokens=int(new),
        temperature=float(temperature),
        top_p=1.0 if top_p is None else float(top_p),
        top_k=-1 if top_k is None else int(top_k),
        min_new_tokens=int(given.get("min_new_tokens") or 0),
        stop_token_ids=frozenset(stops),
        ignore_eos=bool(given.get("ignore_eos") or False),
        seed=given.get("sampling_seed"),
    )
