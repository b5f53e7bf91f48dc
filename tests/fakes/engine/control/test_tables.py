"""Tables by version, as read: defaults of fields, methods, which profiles have what; keys on every kind of route."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.engine.auth import decide
from fakes.engine.crash import Crash
from fakes.engine.penalties import Penalties
from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import EngineConfig
from fakes.engine.requests import REQUIRED, structs
from fakes.engine.routes import routes


def having(name: str) -> list[str]:
    return [version for version in ORDER if getattr(PROFILES[version], name)]


def test_which_versions_have_what() -> None:
    after_18 = [version for version in ORDER if version not in ("0.5.12.post1", "0.5.17", "0.5.18")]
    assert having("spans") == after_18
    assert having("checker_get") == [version for version in ORDER if version != "0.5.12.post1"]
    assert having("ready_route") == ["0.5.20", "0.5.21", "0.5.22", "0.5.23"]


@pytest.mark.parametrize("version", ORDER)
def test_the_checker_takes_get_and_no_body_since_0_5_17(version: str) -> None:
    """entrypoints/http_server.py:1486@0.5.17."""
    found = routes(PROFILES[version])
    new = version != "0.5.12.post1"
    assert "GET" in found["/"].methods
    checker = found["/weights_checker"]
    assert (sorted(checker.methods), checker.body_optional) == (["GET", "POST"] if new else ["POST"], new)
    assert not any(route.body_optional for route in found.values() if route is not checker)


def test_defaults() -> None:
    """managers/io_struct.py@0.5.23."""
    found = {
        name: {field.name: field.default for field in struct.fields if field.name not in ("rid", "http_worker_ipc")}
        for name, struct in structs(PROFILES["0.5.23"]).items()
    }
    expected: dict[str, dict[str, Any]] = {
        "CheckWeightsReqInput": {
            "action": "checksum", "allow_quant_error": False, "skip_tensor_list": None, "selector": "all"
        },
        "AbortReq": {
            "abort_all": False, "finished_reason": None, "abort_message": None, "weight_versions": None
        },
        "ContinueGenerationReqInput": {"torch_empty_cache": True},
        "UpdateWeightVersionReqInput": {"new_version": REQUIRED, "abort_all_requests": True},
        "GetWeightsByNameReqInput": {"name": REQUIRED, "truncate_size": 100},
        "PauseGenerationReqInput": {"mode": "abort"},
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    old = structs(PROFILES["0.5.12.post1"])["CheckWeightsReqInput"].fields
    assert [(field.name, field.default) for field in old][:1] == [("action", REQUIRED)]
    assert len(old) == 3


def decided(method: str, path: str, bearer: str | None, version: str = "0.5.23", **keys: str) -> str:
    profile = PROFILES[version]
    config = EngineConfig(profile=version, model_path="m", **keys)  # type: ignore[arg-type]  # two texts
    return decide(profile, config, routes(profile), method, path, bearer)


@pytest.mark.parametrize(
    ("method", "path", "opens"),
    [
        ("POST", "/begin_weight_update", "a"),
        ("GET", "/begin_weight_update", "u"),
        ("POST", "/generate", "u"),
        ("POST", "/nowhere", "u"),
    ],
)
def test_which_of_two_keys_opens(method: str, path: str, opens: str) -> None:
    """utils/auth.py:53-117@0.5.23: the admin key opens control routes, called as they are to be called."""
    found = {key: decided(method, path, key, api_key="u", admin_api_key="a") for key in ("u", "a", None)}
    assert found == {**dict.fromkeys(("u", "a", None), "unauthorised"), opens: "allowed"}


def test_one_key_alone() -> None:
    assert decided("POST", "/begin_weight_update", None, api_key="u") == "unauthorised"
    assert decided("POST", "/begin_weight_update", "u", api_key="u") == "allowed"
    assert decided("POST", "/generate", None, admin_api_key="a") == "allowed"


@pytest.mark.parametrize("version", ORDER)
def test_what_needs_no_key(version: str) -> None:
    ready = decided("GET", "/ready", None, version, api_key="u")
    assert ready == ("allowed" if version in having("ready_route") else "unauthorised")
    assert decided("OPTIONS", "/generate", None, version, api_key="u") == "allowed"
    assert decided("GET", "/health", None, version, api_key="u") == "allowed"


def test_a_crash_says_what_it_was() -> None:
    assert str(Crash("ValueError", "no")) == "ValueError: no"


def test_penalties_leave_numpy_as_it_was_and_divide_what_is_small() -> None:
    with np.errstate(over="warn", invalid="raise"):
        shaped = Penalties(repetition=2.0).apply(np.array([0.5, 0.0, -0.5], np.float32), [0, 1, 2])
        assert (np.geterr()["over"], np.geterr()["invalid"]) == ("warn", "raise")
    assert shaped.tolist() == [0.25, 0.0, -1.0]
