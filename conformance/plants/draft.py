"""Broken clients and lenient engines of draft models."""

from __future__ import annotations

from typing import Any

from conformance.plants.make import broken, lenient, method

DRAFT = "fakes.engine.draft:Draft"
UPDATER = "fakes.engine.weight_update:WeightUpdater"
STALE = "sgl-project/sglang#27718"
LENIENT = "a fake that is kinder than SGLang"


def _for_the_target(original: Any) -> Any:
    def post(self: Any, engine: Any, parcel: Any, payloads: Any) -> None:
        request = engine.endpoint.request

        def apart(op: str, body: Any, **rest: Any) -> Any:
            return request(op, {**body, "selector": "target", "disable_draft_model": True}, **rest)

        with_field = _Endpoint(engine.endpoint, apart)
        kept, engine.endpoint = engine.endpoint, with_field
        try:
            original(self, engine, parcel, payloads)
        finally:
            engine.endpoint = kept

    return post


class _Endpoint:
    def __init__(self, endpoint: Any, request: Any) -> None:
        self._endpoint = endpoint
        self.request = request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)


def _whoever(*wanted: str, op: str = "") -> Any:
    """All updates, or those of `op`, load these runners."""

    def make(original: Any) -> Any:
        def roles(p: Any, called: str, obj: Any, *, draft: bool) -> Any:
            return wanted if draft and op in ("", called) else original(p, called, obj, draft=draft)

        return roles

    return make


def _never(original: Any) -> Any:
    return lambda self: None


def _kept_too(original: Any) -> Any:
    def resumed(self: Any, poison: int) -> None:
        if self._kept is not None:
            original(self, poison)

    return resumed


ROLES = "fakes.engine.weight_update:roles"

PLANTS = (
    broken(
        "draft-is-left-alone",
        "DRAFT-1",
        STALE,
        "updates name the target, and the draft keeps its first weights",
        method("harness.reference.transports.tensor:TensorTransfer._post", _for_the_target),
    ),
    lenient(
        "selector-is-not-read",
        "DRAFT-51",
        LENIENT,
        "every update loads both",
        method(ROLES, _whoever("target", "draft")),
    ),
    lenient(
        "disable-draft-model-is-not-read",
        "DRAFT-52",
        LENIENT,
        "every update loads both, in the old versions, too",
        method(ROLES, _whoever("draft", "target")),
    ),
    lenient(
        "draft-hears-broadcasts",
        "DRAFT-53",
        LENIENT,
        "broadcasts are loaded by the draft before 0.5.21",
        method(ROLES, _whoever("target", "draft", op="update_weights_from_distributed")),
    ),
    lenient(
        "draft-hears-no-broadcast",
        "DRAFT-54",
        STALE,
        "broadcasts are loaded by the target alone in every version",
        method(ROLES, _whoever("target", op="update_weights_from_distributed")),
    ),
    lenient(
        "frozen-draft-stays-as-it-is",
        "DRAFT-55",
        LENIENT,
        "the end of a session leaves the draft alone",
        method(f"{DRAFT}.finalise", _never),
    ),
    lenient(
        "draft-comes-back",
        "DRAFT-56",
        LENIENT,
        "a draft that was released is there again",
        method(f"{DRAFT}.resumed", _kept_too),
    ),
)
