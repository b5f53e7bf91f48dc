"""Stories of sessions and of every way to change weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from fakes.engine.profiles import PROFILES
from fakes.engine.protocol import Raised
from tests.fakes.engine.control.driver import Driver
from tests.fakes.engine.control.stories.generating import body
from tests.fakes.engine.control.stories.teller import Teller

NORM = "model.norm.weight"
GROUP = {"master_address": "10.0.0.1", "master_port": 2950, "rank_offset": 1, "world_size": 3, "group_name": "g"}


def opened(version: str, **config: Any) -> Teller:
    """With a session where the version has them."""
    engine = Teller(version, **config)
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    return engine


def joined(stories: list[Teller]) -> Teller:
    for story in stories[1:]:
        stories[0].lines += story.lines
    return stories[0]


def sessions(version: str) -> Teller:
    """Every order of begin, update and end that matters."""
    told = []
    for order in ("update", "end", "begin begin", "begin update end end", "begin end update"):
        engine = Teller(version)
        for step in order.split():
            if step == "update":
                engine.update({NORM: engine.weights(1)[NORM]}, weight_version="v1")
            else:
                engine.call(f"{step}_weight_update", {})
            if engine.died:
                break
        engine.advance(80.0)
        told.append(engine)
    return joined(told)


def tensors(version: str) -> Teller:
    """Two ranks: whole, halves, direct, selectors, versions, flush or not, and what is served in between."""
    engine = opened(version, tp_size=2)
    engine.call("generate", body(2))
    engine.update(seed=1, weight_version="a", flush_cache=False)
    engine.call("generate", body(2))
    names = list(engine.weights(1))
    engine.update({name: engine.weights(2)[name] for name in names[:3]})
    engine.call("generate", body(2))
    if PROFILES[version].session != "none":
        engine.call("end_weight_update", {})
        engine.call("begin_weight_update", {"selector": "target"})
    engine.update(seed=2, load_format="flattened_bucket")
    shard = {NORM: np.ones(64, np.float32)}
    engine.update(shard, load_format="direct")
    engine.update({"unknown": shard[NORM]})
    if PROFILES[version].selector:
        engine.update(seed=3, selector="draft")
        engine.update(seed=3, selector="target")
    engine.call("generate", body(2))
    engine.call("model_info", method="GET")
    return engine


def updates_and_requests(version: str) -> Teller:
    """An update that waits for a running request, one that aborts it, one in a pause over it."""
    engine = opened(version)
    running = engine.start("generate", body(6))
    update = engine.start("update_weights_from_tensor", {"serialized_named_tensors": [engine.payload({})]})
    late = engine.start("generate", body(1))
    for call in (running, update, late):
        engine.result(call)
    engine.start("generate", body(60))
    engine.advance(0.01)
    engine.update({}, abort_all_requests=True)
    engine.advance(0.1)
    queued = engine.start("generate", body(30))
    engine.advance(0.02)
    engine.call("pause_generation", {"mode": "retract"})
    engine.update(seed=1, weight_version="b")
    engine.call("continue_generation", {})
    if not engine.died:
        engine.result(queued)
    frozen = opened(version)
    frozen.start("generate", body(30))
    frozen.advance(0.02)
    frozen.call("pause_generation", {"mode": "in_place"})
    frozen.update(seed=1, weight_version="c", flush_cache=False)
    frozen.update(seed=2, weight_version="d")
    frozen.advance(80.0)
    return joined([engine, frozen])


def bad_payloads(version: str) -> Teller:
    """One rank's payload that is missing, refused, of the wrong shape, in an unknown format."""
    told = []
    weights = Driver(version).weights(1)
    for case in ("short list", "refused on rank 1", "shape", "format", "base64", "direct"):
        engine = opened(version, tp_size=2)
        good = engine.payload({NORM: weights[NORM]})
        bad = engine.payload(Raised("RuntimeError", "no such file"))
        wrong = engine.payload({NORM: weights[NORM][:3]})
        fields: dict[str, Any] = {
            "short list": {"serialized_named_tensors": [good]},
            "refused on rank 1": {"serialized_named_tensors": [good, bad]},
            "shape": {"serialized_named_tensors": [good, wrong]},
            "format": {"serialized_named_tensors": [good, good], "load_format": "bogus"},
            "base64": {"serialized_named_tensors": ["!!!", good]},
            "direct": {"serialized_named_tensors": [engine.payload({"nope": weights[NORM]})] * 2},
        }[case]
        if case == "direct":
            fields["load_format"] = "direct"
        engine.call("update_weights_from_tensor", fields)
        engine.advance(80.0)
        told.append(engine)
    return joined(told)


def disk(version: str) -> Teller:
    """In and out of a pause, missing, with a tensor that does not fit, two at once."""
    engine = Teller(version, tp_size=2)
    weights = engine.weights(1)
    engine.disk["/b"] = list(weights.items())
    engine.call("update_weights_from_disk", {"model_path": "/b", "weight_version": "d1"})
    engine.call("generate", body(2))
    engine.call("update_weights_from_disk", {"model_path": "/gone"})
    engine.call("pause_generation", {"mode": "retract"})
    engine.call("update_weights_from_disk", {"model_path": "/b", "flush_cache": False, "load_format": "auto"})
    engine.call("continue_generation", {})
    running = engine.start("generate", body(30))
    engine.advance(0.02)
    engine.call("update_weights_from_disk", {"model_path": "/b", "abort_all_requests": True, "weight_version": "d3"})
    engine.result(running)
    engine.call("pause_generation", {"mode": "retract"})
    engine.hang.add("ReadDisk")
    engine.start("update_weights_from_disk", {"model_path": "/b", "weight_version": "d4"})
    engine.start("update_weights_from_disk", {"model_path": "/b", "weight_version": "d5"})
    engine.hang.clear()
    engine.finish_reads()
    engine.advance(80.0)
    bad = Teller(version, tp_size=2)
    bad.disk["/bad"] = [("lm_head.weight", weights["lm_head.weight"]), (NORM, weights[NORM][:5])]
    bad.call("update_weights_from_disk", {"model_path": "/bad", "weight_version": "d2"})
    bad.advance(80.0)
    return joined([engine, bad])


def broadcasts(version: str) -> Teller:
    """Groups made and unmade, tensors received, and all that is refused."""
    engine = opened(version, tp_size=2)
    weights = engine.weights(1)
    spec: dict[str, Any] = {"names": [NORM], "dtypes": ["bfloat16"], "shapes": [[64]], "group_name": "g"}
    engine.call("init_weights_update_group", {**GROUP, "backend": "gloo"})
    engine.call("init_weights_update_group", {**GROUP, "backend": "gloo"})
    engine.call("init_weights_update_group", {**GROUP, "backend": "nccl", "group_name": "n"})
    engine.call("init_weights_update_group", {**GROUP, "backend": "nccl", "world_size": 1, "group_name": "n"})
    engine.join_error = Raised("TimeoutError", "nobody came")
    engine.call("init_weights_update_group", {**GROUP, "backend": "gloo", "group_name": "late"})
    engine.broadcast = [(NORM, weights[NORM])]
    engine.call("update_weights_from_distributed", {**spec, "weight_version": "x1"})
    engine.call("update_weights_from_distributed", {**spec, "load_format": "flattened_bucket", "flush_cache": False})
    engine.call("update_weights_from_distributed", {**spec, "dtypes": ["bf16"]})
    engine.call("update_weights_from_distributed", {**spec, "names": [NORM, "b"]})
    engine.call("update_weights_from_distributed", {**spec, "names": [NORM, "b"], "load_format": "flattened_bucket"})
    if PROFILES[version].selector:
        engine.call("update_weights_from_distributed", {**spec, "selector": "draft"})
    engine.broadcast = [(NORM, weights[NORM][:9])]
    engine.call("update_weights_from_distributed", spec)
    engine.broadcast = Raised("RuntimeError", "peer is gone")
    engine.call("update_weights_from_distributed", {**spec, "abort_all_requests": True})
    engine.call("destroy_weights_update_group", {"group_name": "g"})
    engine.call("destroy_weights_update_group", {"group_name": "g"})
    engine.call("update_weights_from_distributed", spec)
    engine.advance(80.0)
    other = Teller(version)
    other.call("init_weights_update_group", {**GROUP, "group_name": ""})
    other.advance(80.0)
    return joined([engine, other])


def checks(version: str) -> Teller:
    """The checker over two ranks, with CUDA and without."""
    told = []
    for config in ({}, {"checker_cuda_shim": True}):
        engine = Teller(version, tp_size=2, **config)
        for action in ("compare", "snapshot", "checksum", "compare", "reset_tensors", "compare", "bogus"):
            engine.call("weights_checker", {"action": action})
        engine.call("weights_checker", {"action": "snapshot", "selector": "draft", "skip_tensor_list": ["norm"]})
        engine.call("weights_checker", {"action": "reset_tensors", "skip_tensor_list": ["model"]})
        engine.call("get_weights_by_name", {"name": "model.layers.0.mlp.down_proj.weight", "truncate_size": 1})
        engine.call("get_weights_by_name", {"name": "nope"})
        told.append(engine)
    return joined(told)


def replicas(version: str) -> Teller:
    """Two data-parallel replicas refuse every update, each in its own way."""
    engine = Teller(version, dp_size=2)
    engine.update({})
    engine.call("update_weights_from_distributed", {"names": [], "dtypes": [], "shapes": []})
    engine.call("update_weights_from_ipc", {"zmq_handles": {}})
    engine.call("init_weights_update_group", GROUP)
    engine.call("destroy_weights_update_group", {"group_name": "g"})
    single = Teller(version)
    single.call("update_weights_from_ipc", {"zmq_handles": {}, "weight_version": "i"})
    return joined([engine, single])


STORIES = (sessions, tensors, updates_and_requests, bad_payloads, disk, broadcasts, checks, replicas)
