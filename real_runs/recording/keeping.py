"""What of a call is written down: the control plane; no prompt, token or key unless somebody asked for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fakes.engine.profiles import PROFILES
from fakes.engine.routes import routes
from harness.gate import digested

_ROUTES = [route for profile in PROFILES.values() for route in routes(profile).values()]
KNOWN = frozenset(route.path.removeprefix("/") for route in _ROUTES)
CONTROL_PLANE = frozenset(route.path.removeprefix("/") for route in _ROUTES if route.auth == "admin")

MOST_BODY = 64 * 2**20
"""Bytes of a body that are looked at; of a longer one its length is written."""
_KEY = re.compile(r"api[_-]?key|authori[sz]ation|bearer|passw|secret|credential|cookie|signature|^(\w+_)?token$", re.I)
_NUMBERS = ("max_new_tokens", "max_tokens", "temperature", "top_p", "top_k", "min_p", "n", "ignore_eos")
_META = (
    *("id", "weight_version", "weight_versions", "finish_reason", "prompt_tokens", "completion_tokens"),
    *("cached_tokens", "num_retractions", "e2e_latency"),
)
_LONG = 128  # characters of a text that somebody else chose


@dataclass(frozen=True)
class Keeping:
    """`tokens`: prompts and answers are written too; `keys`: fields that are called like keys are."""

    tokens: bool = False
    keys: bool = False

    def path(self, path: str) -> str:
        """The operation: the path without its first slash; of a path that SGLang does not have, its first part."""
        op = path.removeprefix("/")
        if op in KNOWN or self.tokens:
            return op[:_LONG]
        return f"{op.partition('/')[0][:32]}/…" if "/" in op else op[:32]

    def query(self, query: Mapping[str, str]) -> dict[str, str]:
        """Parameters, cut, without keys."""
        return {name[:_LONG]: self._hidden(name, value[:_LONG]) for name, value in query.items()}

    def request(self, op: str, body: bytes | None, size: int) -> Any:
        """What is written of a request's body; None is one that was too long to look at."""
        if not size:
            return None
        value = _json(body)
        if value is _NONE:
            return {"len": size}
        if op in CONTROL_PLANE or self.tokens:
            return digested(self._without_keys(value))
        return _counts(value) if isinstance(value, Mapping) else {"len": size}

    def reply(self, op: str, status: int, media: str, body: bytes | None, size: int) -> Any:
        """What is written of an answer's body: JSON, text, or its length alone."""
        if not size:
            return None
        if body is None:
            return {"len": size}
        if media.startswith("text/event-stream"):
            return body.decode("utf-8", "replace") if self.tokens else _stream(body)
        value = _json(body) if media.startswith("application/json") else _NONE
        if (op in KNOWN and op not in _SPOKEN) or self.tokens:
            return body.decode("utf-8", "replace") if value is _NONE else self._without_keys(value)
        if status != 200 or not isinstance(value, Mapping):
            return {"len": size}  # an error may quote what was asked
        return _meta(value)

    def _without_keys(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(name): self._hidden(str(name), self._without_keys(one)) for name, one in value.items()}
        return [self._without_keys(one) for one in value] if isinstance(value, list) else value

    def _hidden(self, name: str, value: Any) -> Any:
        return "(not kept)" if not self.keys and value and _KEY.search(name) else value


_SPOKEN = frozenset({"generate"})
_NONE = object()


def _json(body: bytes | None) -> Any:
    try:
        return _NONE if body is None else msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _NONE


def _counts(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Of a generation's request: how much was asked, and how."""
    out: dict[str, Any] = {}
    for name in ("input_ids", "text", "prompt", "messages"):
        if isinstance(asked.get(name), Sequence):
            out[name] = {"len": len(asked[name])}
    sampling = asked.get("sampling_params")
    for place in (asked, sampling if isinstance(sampling, Mapping) else {}):
        out |= {name: place[name] for name in _NUMBERS if isinstance(place.get(name), int | float)}
    return out | {name: asked[name] for name in ("stream", "return_logprob") if isinstance(asked.get(name), bool)}


def _meta(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Of a generation's answer: which weights, how many tokens, why it ended."""
    meta = answer.get("meta_info")
    kept = {name: meta[name] for name in _META if name in meta} if isinstance(meta, Mapping) else {}
    finish = kept.pop("finish_reason", None)
    if isinstance(finish, Mapping):  # "matched" is a token
        kept["finish_reason"] = {"type": str(finish.get("type", ""))[:_LONG]}
    return {"meta_info": {name: value[:_LONG] if isinstance(value, str) else value for name, value in kept.items()}}


def _stream(body: bytes) -> dict[str, Any]:
    """Of a stream: how many events, and what the last one with data says of itself."""
    events = [line[len(b"data: ") :] for line in body.split(b"\n") if line.startswith(b"data: ")]
    last = next((value for event in reversed(events) if isinstance(value := _json(event), Mapping)), {})
    return {"len": len(body), "events": len(events), **_meta(last)}
