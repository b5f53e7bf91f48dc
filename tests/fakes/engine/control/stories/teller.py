"""A driver that writes down all that an engine does, in lines that a reader can check against the contract.

`0.010  > 3 POST pause_generation {...}` is a call, `< 3 400 {...}` its reply, `. 3 {...}` a chunk of its stream,
`* name ...` a core fact, `! Die ...` an effect of another kind. Weights are named W0, W1, ... in the order in which
they appear, digests and request ids of the engine's own making likewise.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from fakes.engine.memo import SHARED
from fakes.engine.protocol import Die, Effect, Observed, OpenPayload, Reply, Token
from tests.fakes.engine.control.driver import Driver

_HEX = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{16})\b")


class Teller(Driver):
    """Effects become lines, in the order in which they come out."""

    def __init__(self, version: str = "0.5.23", **config: Any) -> None:
        SHARED.clear()  # what another test left there must not answer for this engine
        self.lines: list[str] = []
        self._names: dict[str, str] = {}
        super().__init__(version, **config)

    def say(self, text: str) -> None:
        self.lines.append(f"{self.now:.3f}  {_HEX.sub(self._named, text)}")

    def _named(self, found: re.Match[str]) -> str:
        text = found.group()
        kind = {16: "W", 32: "R", 64: "D"}[len(text)]
        count = sum(1 for name in self._names.values() if name.startswith(kind))
        return self._names.setdefault(text, f"{kind}{count}")

    def start(self, op: str, body: Any = None, **options: Any) -> int:
        more = {name: value for name, value in options.items() if name != "method" and value is not None}
        if isinstance(more.get("raw"), bytes):
            more["raw"] = more["raw"].decode("latin-1")
        about = f" {plain(body)}" if body is not None else ""
        about += f" {plain(more)}" if more else ""
        self.say(f"> {self._next + 1} {options.get('method', 'POST')} {op}{about}")
        return super().start(op, body, **options)

    def cancel(self, call: int) -> None:
        self.say(f"x {call}")
        super().cancel(call)

    def _absorb(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.say(told(effect))
        super()._absorb(effects)


def told(effect: Effect) -> str:
    if isinstance(effect, Reply):
        value = "" if effect.value is None or effect.value == effect.body else f" = {plain(effect.value)}"
        return f"< {effect.id} {effect.status} {effect.media} {plain(effect.body)}{value}"
    if isinstance(effect, Token):
        return f". {effect.id} {plain(effect.chunk)}"
    if isinstance(effect, Observed):
        return f"* {effect.name} {plain(effect.data)}"
    if isinstance(effect, Die):
        return f"! Die rank {effect.rank} {effect.error.type}: {effect.error.message}"
    fields = {name: getattr(effect, name) for name in effect.__struct_fields__}
    if fields.get("unpickle_only") is False:
        del fields["unpickle_only"]
    if isinstance(effect, OpenPayload):
        fields["data"] = len(effect.data)
    return f"! {type(effect).__name__} {plain(fields)}"


def plain(value: Any) -> str:
    return json.dumps(rounded(value), default=str, separators=(", ", ": "), ensure_ascii=False)


def rounded(value: Any) -> Any:
    """Floats to 4 digits, long lists and texts cut: the tails are pinned elsewhere."""
    if isinstance(value, float | np.floating):
        return round(float(value), 4)
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items() if not str(key).endswith("_data")}
    if isinstance(value, list | tuple):
        items = [rounded(item) for item in value[:12]]
        return [*items, f"and {len(value) - 12} more"] if len(value) > 12 else items
    if isinstance(value, str):
        return value if len(value) <= 300 else f"{value[:200]} ... {value[-60:]}"
    if hasattr(value, "__struct_fields__"):
        return [type(value).__name__, *(rounded(getattr(value, name)) for name in value.__struct_fields__)]
    return value
