"""Every field of /generate and every control body with every kind of value: answered with less than 500, as the real
one does, or 500 for what Python trips over, or a death; nothing hangs, and no lock is held afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.engine.generate_contract import SAMPLING_FIELDS
from fakes.engine.generate_fields import typed_structs
from fakes.engine.profiles import PROFILES
from fakes.engine.requests import structs
from fakes.engine.routes import routes
from tests.fakes.engine.control.driver import Driver, generate_body

VERSIONS = pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.20", "0.5.23"])
VALUES: list[Any] = [
    None, True, 0, 1, -1, 2**31, 2**63 - 1, 2**64, -(2**63), 1.5, 1e308, -1e308, "", "x", "3", [], [None], [1], ["a"],
    [[1]], [[]], [-1], [2**63 - 1], ["a", "a"], {}, {"a": 1}, {"id": 1}, [{}], "x" * 10_000, ["x"] * 1000, [0] * 1000,
]  # fmt: skip
FATAL = {
    "input_ids": ("IndexError", "index out of range in self"),
    "top_logprobs_num": ("RuntimeError", "selected index k out of range"),
    "token_ids_logprob": ("IndexError", "is out of bounds"),
}
"""What the real scheduler dies of too."""
FATAL_12 = {
    "logprob_start_len": ("RuntimeError", "pin_memory=True requires a CUDA"),
    "min_new_tokens": ("AttributeError", "'additional_stop_token_ids'"),
    "stop": ("AttributeError", "'decode'"),
    "stop_regex": ("AttributeError", "'decode'"),
}
"""And 0.5.12.post1, on a CPU and without a tokenizer."""

ENDINGS = {
    False: {("reply", 200), ("reply", 400), ("reply", 500)},
    True: {("reply", 200), ("reply", 400), ("dropped", None)},
}
"""Whether it streams -> how it may end while the engine lives."""


def fresh(version: str) -> Driver:
    return Driver(version, max_running_requests=64)


def whole(engine: Driver, what: Any) -> None:
    """The engine takes an update and answers a generation: nothing is held."""
    session = engine.config.profile == "0.5.23"
    if session:
        assert engine.call("begin_weight_update", {}, timeout=60).status == 200, what
    assert engine.update(seed=0).status == 200, what
    if session:
        assert engine.call("end_weight_update", {}, timeout=60).status == 200, what
    assert engine.call("generate", generate_body(2), timeout=60).status == 200, what


@VERSIONS
@pytest.mark.parametrize("stream", [False, True])
def test_every_field(version: str, stream: bool) -> None:
    names = [field.name for field in typed_structs(PROFILES[version])["GenerateReqInput"]]
    engine = fresh(version)
    for name in names:
        for value in VALUES:
            body = {**generate_body(2, return_logprob=True, stream=stream), name: value}
            reply = engine.call("generate", body, timeout=120)
            if engine.died is not None:
                kind, text = (FATAL | FATAL_12 if version == "0.5.12.post1" else FATAL)[name]
                assert engine.died.error.type == kind, (name, value)
                assert text in engine.died.error.message
                engine = fresh(version)
                continue
            ends = ("dropped", None) if stream and reply.ending == "dropped" else ("reply", reply.status)
            assert ends in ENDINGS[stream], (name, value, reply)
        whole(engine, name)


@VERSIONS
def test_every_sampling_parameter(version: str) -> None:
    engine = fresh(version)
    for name in (*SAMPLING_FIELDS, "bogus"):
        for value in VALUES:
            if name == "n" and value in (2**31, 2**63 - 1, 2**64, 1e308):
                continue  # SGLang sets out to make so many answers, too
            body = generate_body(2)
            body["sampling_params"][name] = value
            reply = engine.call("generate", body, timeout=120)
            if engine.died is not None and version == "0.5.12.post1":
                assert engine.died.error.type == FATAL_12[name][0], (name, value)
                assert FATAL_12[name][1] in engine.died.error.message
                engine = fresh(version)
                continue
            assert engine.died is None, (name, value, engine.died)
            assert reply.status in (200, 400, 500), (name, value, reply)
        whole(engine, name)


@VERSIONS
def test_several_fields_for_a_batch(version: str) -> None:
    engine = fresh(version)
    for name in ("rid", "text", "sampling_params", "return_logprob", "logprob_start_len", "extra_key"):
        for value in VALUES:
            body = {**generate_body(2), "input_ids": [[5, 6], [7, 8, 9]], name: value}
            reply = engine.call("generate", body, timeout=120)
            assert engine.died is None, (name, value, engine.died)
            assert reply.status in (200, 400, 500), (name, value, reply)
        whole(engine, name)


@VERSIONS
def test_every_control_body(version: str) -> None:
    """A refused value changes nothing; what is taken may kill, but is never answered with a bare 500."""
    profile = PROFILES[version]
    bodies = structs(profile)
    for path, route in routes(profile).items():
        if route.body is None or route.handler == "generate":
            continue
        op = path.lstrip("/")
        needed = {field.name: NEEDED.get(field.name) for field in bodies[route.body].fields if field.name in NEEDED}
        engine = Driver(version)
        engine.hang |= {"Join", "Recv"}
        for field in bodies[route.body].fields:
            for value in VALUES:
                reply = engine.call(op, {**needed, field.name: value}, timeout=30)
                what = (op, field.name, value, reply)
                if reply.ending == "reply":
                    assert reply.status in (200, 400), what
                    continue
                assert engine.died is not None or engine.hung, what
                engine = Driver(version)
                engine.hang |= {"Join", "Recv"}


NEEDED: dict[str, Any] = {
    "serialized_named_tensors": ["aGVsbG8="],
    "names": ["model.norm.weight"],
    "dtypes": ["bfloat16"],
    "shapes": [[64]],
    "model_path": "/nonexistent",
    "zmq_handles": {},
    "master_address": "127.0.0.1",
    "master_port": 1,
    "rank_offset": 1,
    "world_size": 2,
    "new_version": "1",
    "name": "model.norm.weight",
    "action": "checksum",
    "forward_sleep_time": None,
}
