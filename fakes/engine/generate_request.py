"""What the tokenizer manager refuses of a /generate body before it sends anything.

The last of three layers: the FastAPI schema (`generate_schema`: 400, ErrorResponse), from 0.5.22 the JSON contract
(`generate_contract`: 400, `{"error": text}`), then ValueErrors of the tokenizer manager (400,
`{"error": {"message": text}}`).
"""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from fakes.engine import messages as m
from fakes.engine.engine_profile import EngineProfile
from fakes.engine.generate_batch import Item
from fakes.engine.generate_contract import SAMPLING_FIELDS
from fakes.engine.penalties import Penalties
from fakes.engine.profiles import ORDER
from fakes.engine.request import Sampling

GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")
"""What a server without a tokenizer has no backend for (constrained/grammar_manager.py:155@0.5.22)."""


def _refuse(message: m.Message, **values: Any) -> ValueError:
    return ValueError(message(**values))


def prepare(
    p: EngineProfile, item: Item, context_len: int, input_limit: int, max_req_len: int
) -> tuple[list[int], Sampling]:
    """Prompt and sampling of one item, checked as the tokenizer manager does. ValueError as SGLang raises it; TypeError
    and OverflowError (500) for a prompt that is no list of 64-bit integers.

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
    tokens = array("q", item.prompt)
    parsed = _sampling(p, sampling)
    if given >= input_limit:
        raise _refuse(m.OVER_LIMIT, given=given, limit=input_limit)
    if item.logprobs is not None and item.logprobs.start > given:
        raise _refuse(m.LOGPROB_START, start=item.logprobs.start, given=given)
    if any(item.sampling.get(name) for name in GRAMMARS):
        raise _refuse(m.GRAMMAR_OFF)
    room = max_req_len - given - 1
    return tokens.tolist(), dataclasses.replace(parsed, max_new_tokens=min(parsed.max_new_tokens, room))


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


def _texts(given: Mapping[str, Any], name: str) -> list[Any]:
    """What a request stops at, as a list: one text is a list of one, the empty text too. TypeError for what has no
    length (sampling/sampling_params.py:212@0.5.17)."""
    value = given.get(name)
    texts = [value] if isinstance(value, str) else [] if value is None else value
    max((len(text) for text in texts), default=0)
    return texts  # type: ignore[no-any-return]  # a list, or what passes for one


def _needs_tokenizer(given: Mapping[str, Any]) -> None:
    """From 0.5.17 what needs a tokenizer is refused without one (sampling/sampling_params.py:306@0.5.17)."""
    for name in ("stop", "stop_regex"):
        texts = _texts(given, name)
        if texts:
            raise _refuse(m.NO_STOP_TEXT, name=name, value=texts)
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
    if p.needs_tokenizer == "refuse":
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
        min_p=float(value["min_p"]),
        penalties=Penalties(
            float(value["frequency_penalty"]),
            float(value["presence_penalty"]),
            float(value["repetition_penalty"]),
            tuple((int(token), float(by)) for token, by in (given.get("logit_bias") or {}).items()),
        ),
        stop_text=any(bool(_texts(given, name)) for name in ("stop", "stop_regex")),
    )
