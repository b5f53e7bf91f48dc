"""The JSON contract of /generate from 0.5.22 on: `{"error": text}` with status 400, in serde's words.

Source: sglang/api/v1/api_types.py decode_GenerateRequest and decode_SamplingParams @0.5.22 and @0.5.23. Keys are judged
in the order of the body, unknown ones pass, except inside sampling_params.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fakes.engine import messages as m
from fakes.engine.engine_profile import EngineProfile

SAMPLING_FIELDS = (
    "max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "n", "json_schema", "regex",
    "ebnf", "structural_tag", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim",
    "stream_interval", "logit_bias", "sampling_seed", "custom_params", "beam_width", "watermark", "choice",
)  # fmt: skip
"""sglang/api/v1/api_types.py@0.5.23 _FIELDS_SamplingParams, in its order; 0.5.22 has no `choice`."""


class Refused(Exception):
    """A 400 with a body of its own, the only argument."""

    @property
    def body(self) -> Any:
        """The JSON value that is answered."""
        return self.args[0]


def check_contract(p: EngineProfile, body: Mapping[str, Any]) -> None:
    """Raises `Refused` with the first thing that the contract does not admit."""
    late = p.version == "0.5.22"
    for name, value in body.items():
        if name == "sampling_params":
            _sampling_params(value, SAMPLING_FIELDS[:-1] if late else SAMPLING_FIELDS)
        elif name in _STRICT and not late:
            _STRICT[name](value)
        elif name in _FIELDS and not (late and name in _SINCE_23) and value is not None:
            _FIELDS[name](value)


Check = Callable[[Any], None]


def _wrong(value: Any, expected: str) -> Refused:
    return Refused({"error": f"invalid type: {_unexpected(value)}, expected {expected}"})


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


def _of_kind(expected: str, kinds: tuple[type, ...], value: Any) -> None:
    if type(value) not in kinds:
        raise _wrong(value, expected)


def _kind(expected: str, *kinds: type) -> Check:
    return partial(_of_kind, expected, kinds)


_boolean, _string = _kind("a boolean", bool), _kind("a string", str)
_integer, _number = _kind("i64", int), _kind("f64", int, float)
_sequence, _map = _kind("a sequence", list), _kind("a map", dict)


def _list(item: Check, value: Any) -> None:
    _sequence(value)
    for each in value:
        item(each)


def _nullable(item: Check, value: Any) -> None:
    if value is not None:
        item(value)


def _or_list(name: str, kind: type, item: Check, value: Any) -> None:
    if isinstance(value, list):
        _list(item, value)
    else:
        _of_kind(f"a value or an array of values for {name}", (kind,), value)


def _flat_or_nested(name: str, item: Check, scalars: tuple[type, ...], value: Any) -> None:
    """[] and [scalar, ...] are one flat list; anything else is a batch."""
    _of_kind(f"a value or an array of values for {name}", (list,), value)
    if value and type(value[0]) not in scalars:
        item = partial(_list, item)
    _list(item, value)


def _unsigned(value: Any) -> None:
    _of_kind("u64", (int,), value)
    if value < 0:
        raise Refused({"error": f"invalid value: integer `{value}`, expected u64"})


def _map_of(item: Check, value: Any) -> None:
    _map(value)
    for each in value.values():
        item(each)


_strings = partial(_or_list, "StringOrList", str, _string)
_optional_strings = partial(_or_list, "OptionalStringOrList", str, partial(_nullable, _string))
_optional_integers = partial(_or_list, "OptionalInt64OrList", int, partial(_nullable, _integer))
_booleans, _integers = (
    partial(_or_list, "BoolOrList", bool, _boolean),
    partial(_or_list, "Int64OrList", int, _integer),
)
_token_ids = partial(_flat_or_nested, "TokenIdsOrList", _integer, (int, float))

_FIELDS: dict[str, Check] = {
    **dict.fromkeys(("rid", "text", "extra_key", "cache_salt"), _strings),
    **dict.fromkeys(("input_ids", "token_ids_logprob"), _token_ids),
    **dict.fromkeys(("stream", "return_text_in_logprobs", "require_reasoning"), _boolean),
    **dict.fromkeys(("return_logprob", "return_hidden_states", "return_sampling_mask"), _booleans),
    **dict.fromkeys(("logprob_start_len", "top_logprobs_num"), _integers),
    **dict.fromkeys(("bootstrap_host", "bootstrap_pair_key", "lora_path", "custom_logit_processor"), _optional_strings),
    **dict.fromkeys(("bootstrap_port", "bootstrap_room", "decode_tp_size"), _optional_integers),
    **dict.fromkeys(("routed_dp_rank", "disagg_prefill_dp_rank", "priority"), _integer),
    **dict.fromkeys(("routing_key", "session_id"), _string),
    "mm_hashes": partial(_flat_or_nested, "StringListOrList", _string, (str,)),
    "max_thinking_tokens": _unsigned,
    "custom_labels": partial(_map_of, _string),
    "modalities": partial(_list, partial(_nullable, _string)),
}
_STRICT: dict[str, Check] = {"return_prompt_token_ids": _boolean, "routed_experts_start_len": _integer}
"""Fields of 0.5.23 that may not be null."""

_SINCE_23 = frozenset(
    (
        "extra_key", "priority", "cache_salt", "require_reasoning", "lora_path", "routing_key", "max_thinking_tokens",
        "session_id", "custom_logit_processor", "custom_labels", "return_sampling_mask", "modalities",
    )
)  # fmt: skip

_SAMPLING: dict[str, Check] = {
    **dict.fromkeys(
        ("max_new_tokens", "top_k", "min_new_tokens", "n", "stream_interval", "sampling_seed", "beam_width"), _integer
    ),
    **dict.fromkeys(
        ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"), _number
    ),
    **dict.fromkeys(("ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"), _boolean),
    **dict.fromkeys(("json_schema", "regex", "ebnf", "structural_tag"), _string),
    **dict.fromkeys(("stop", "stop_regex"), _strings),
    "stop_token_ids": partial(_list, _integer),
    "logit_bias": partial(_map_of, _number),
    "choice": partial(_list, _string),
}


def _sampling_params(params: Any, fields: tuple[str, ...]) -> None:
    if params is None:
        return
    if not isinstance(params, list):
        _of_kind("a value or an array of values for SamplingParamsOrList", (dict,), params)
        params = [params]
    for sampling in params:
        _of_kind("struct SamplingParams", (dict,), sampling)
        for name, value in sampling.items():
            if name not in fields:
                listed = ", ".join(f"`{field}`" for field in fields)
                raise Refused({"error": m.UNKNOWN_SAMPLING(name=name, fields=listed)})
            if value is not None and name in _SAMPLING:
                _SAMPLING[name](value)
