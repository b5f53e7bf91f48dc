"""Broken clients of quantised engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.plants.make import broken, method

QUANTISED = "harness.reference.quantised"
TRANSFER = "harness.reference.transports.tensor:TensorTransfer"
NEMO = "mxfp8 refits of NeMo-RL"


def _first_scales(original: Any) -> Any:
    kept: dict[str, Any] = {}

    def pair(name: str, tensor: Any, scheme: str) -> Any:
        weight, scale = original(name, tensor, scheme)
        return [weight, kept.setdefault(name, scale)]

    return pair


def _scales_last(original: Any) -> Any:
    def groups(stream: Any, plan: Any) -> Iterator[Any]:
        late = []
        for group in original(stream, plan):
            yield group[:1]
            late += [[half] for half in group[1:]]
        yield from late

    return groups


def _a_session_each(original: Any) -> Any:
    def post(self: Any, engine: Any, parcel: Any, payloads: Any) -> None:
        if engine.touched:
            for op in ("end_weight_update", "begin_weight_update"):
                engine.endpoint.request(op, {}, timeout_s=5.0)
        original(self, engine, parcel, payloads)

    return post


def _or_nothing(original: Any) -> Any:
    def plan_of(given: Any) -> Any:
        from harness.reference.errors import BadSetup

        try:
            return original(given)
        except BadSetup:
            return original({"scheme": "bf16"})

    return plan_of


PLANTS = (
    broken(
        "scales-of-the-first-refit",
        "DERIV-1",
        "verl-project/verl#7519, scales of an earlier sync",
        "scales are made once and sent for ever",
        method(f"{QUANTISED}:pair", _first_scales),
    ),
    broken(
        "scales-behind-everything",
        "DERIV-2",
        f"{NEMO}, D104",
        "all weights first, then all scales",
        method(f"{QUANTISED}:groups", _scales_last),
    ),
    broken(
        "a-session-for-each-bucket",
        "DERIV-3",
        "sgl-project/sglang#28963, sgl-project/sglang#40586",
        "the session is ended and begun between buckets",
        method(f"{TRANSFER}._post", _a_session_each),
    ),
    broken(
        "unknown-scheme-is-none",
        "DERIV-4",
        "NVIDIA-NeMo/RL#3612, D99",
        "what nobody knows is sent as it is",
        method("harness.reference.setup:plan_of", _or_nothing),
        method("harness.reference.adapter:plan_of", _or_nothing),
    ),
)
