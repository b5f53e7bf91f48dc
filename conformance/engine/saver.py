"""Memory tags with a memory saver: what was released is really gone, and touching it kills."""

from __future__ import annotations

from conformance.engine.mem import RELEASE, RESUME
from conformance.engine.steps import ask, begin, bucket, know, load, push, running
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/saver")
SAVER = {"enable_memory_saver": True}
GPU = "fake only: the memory saver needs a GPU (observed there: 0.5.21)"
LANES = ["fake", "http", "sglang-gpu"]


def _away_and_back(bench: Bench) -> None:
    """Other questions each time: nothing of the KV cache may answer for the weights."""
    e = bench.e0
    know(bench, e, "before", "resumed", "half", "whole")
    ask(bench, e, "before")
    e.sleep(1.0)
    e.call(RELEASE, {"tags": ["weights"]})
    e.call(RESUME, {"tags": ["weights"]})
    ask(bench, e, "resumed")
    weights = bench.weights(1, e)
    push(bench, e, "resumed-half", dict(list(weights.items())[: len(weights) // 2]))
    ask(bench, e, "half")
    push(bench, e, "resumed-whole", weights, seeds=[1])
    ask(bench, e, "whole")


@scenarios.add("MEM-60", "MEM-62", relation=GPU, lanes=LANES, options=SAVER)
def weights_away_and_back(bench: Bench) -> None:
    """Asked at once, after half a set and after a whole one."""
    _away_and_back(bench)


@scenarios.add(
    "MEM-60",
    "MEM-62",
    relation="fake only: what resumed memory holds is unspecified, here it is garbage",
    lanes=["fake"],
    options={**SAVER, "strict_memory": True},
)
def weights_away_and_back_as_garbage(bench: Bench) -> None:
    """The same, where nobody can take zeros for granted."""
    _away_and_back(bench)


@scenarios.add("MEM-61", relation=GPU, lanes=LANES, options={**SAVER, "enable_weights_cpu_backup": True})
def weights_with_a_backup(bench: Bench) -> None:
    """Loaded, released, resumed, asked."""
    e = bench.e0
    know(bench, e, "kept")
    load(bench, e, 1)
    e.sleep(1.0)
    e.call(RELEASE, {"tags": ["weights"]})
    e.call(RESUME, {"tags": ["weights"]})
    ask(bench, e, "kept")


@scenarios.add("MEM-63", "ERR-51", relation=GPU, lanes=LANES, options=SAVER, fatal=True)
def a_bucket_into_released_weights(bench: Bench) -> None:
    """In a session that was begun before the release."""
    e = bench.e0
    begin(bench, e)
    e.sleep(1.0)
    e.call(RELEASE, {"tags": ["weights"]})
    bucket(bench, e, 1)
    e.call("model_info", method="GET")


@scenarios.add("MEM-64", "ERR-51", relation=GPU, lanes=LANES, options=SAVER, fatal=True)
def released_twice(bench: Bench) -> None:
    """The same tag."""
    e = bench.e0
    e.sleep(1.0)
    e.call(RELEASE, {"tags": ["kv_cache"]})
    e.call(RELEASE, {"tags": ["kv_cache"]})
    e.call("model_info", method="GET")


def _served_while_away(bench: Bench, tag: str) -> None:
    e = bench.e0
    e.sleep(1.0)
    e.call(RELEASE, {"tags": [tag]})
    running(bench, e, "away", 4).result(60.0)
    e.call("model_info", method="GET")


@scenarios.add("MEM-65", "ERR-51", relation=GPU, lanes=LANES, options=SAVER, fatal=True)
def a_request_while_the_pool_is_away(bench: Bench) -> None:
    """Not paused, tag kv_cache."""
    _served_while_away(bench, "kv_cache")


@scenarios.add("MEM-65", "ERR-51", relation=GPU, lanes=LANES, options=SAVER, fatal=True)
def a_request_while_weights_are_away(bench: Bench) -> None:
    """Not paused, tag weights."""
    _served_while_away(bench, "weights")


@scenarios.add("MEM-66", "MEM-59", relation=GPU, lanes=LANES, options=SAVER)
def a_request_that_waits_for_the_pool(bench: Bench) -> None:
    """Paused, released, asked, resumed, continued: it waits, and is served from an empty cache."""
    e = bench.e0
    know(bench, e, "waits", seeds=(0,))
    ask(bench, e, "waits")
    e.sleep(1.0)
    e.call("pause_generation", {"mode": "abort"})
    e.call(RELEASE, {"tags": ["kv_cache", "cuda_graph"]})
    waiting = bench.traffic(e, "waits", n=8)
    e.sleep(0.5)
    e.call(RESUME, {"tags": ["kv_cache", "cuda_graph"]})
    e.call("continue_generation", {})
    waiting.result(60.0)
