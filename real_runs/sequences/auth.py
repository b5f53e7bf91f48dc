"""API keys (utils/auth.py@0.5.23): the admin key alone opens control calls where it is set."""

import msgspec

from real_runs.sequence import (
    ADMIN_KEY,
    API_KEY,
    BEGIN,
    FLUSH,
    MODEL_INFO,
    Flavour,
    Sequence,
    Step,
    call,
    generate,
    get,
)

CALLS = [
    get("health"),
    get("ready"),
    get("ping"),
    MODEL_INFO,
    get("server_info", compare="keys"),
    call("generate", generate(n=2)),
    FLUSH,
    BEGIN,
    call("end_weight_update", {}),
    call("pause_generation", {"mode": "retract"}),
    call("continue_generation", {}),
    call("update_weights_from_tensor", {}),
    call("update_weight_version", {"new_version": "a1"}),
    call("release_memory_occupation", {"tags": ["bogus"]}),
    call("resume_memory_occupation", {"tags": ["bogus"]}),
    call("weights_checker", {"action": "bogus"}),
    call("get_weights_by_name", {"name": "model.norm.weight", "truncate_size": 2}),
    call("abort_request", {"rid": "unknown"}),
    call("nothing_here", {}),
]


def _with(bearer: str | None) -> list[Step]:
    return [msgspec.structs.replace(step, bearer=bearer) for step in CALLS]


_FLAVOURS: tuple[Flavour, ...] = ("api_key", "admin_key", "both_keys")
_BEARERS = {"none": None, "wrong": "wrong", "api": API_KEY, "admin": ADMIN_KEY}

SEQUENCES = [
    Sequence(
        name=f"auth/{flavour}-{who}",
        about=f"server with {flavour}, caller with {who}",
        tp=[1],
        flavour=flavour,
        steps=_with(bearer),
    )
    for flavour in _FLAVOURS
    for who, bearer in _BEARERS.items()
]
