"""A draft model beside the target: who of them an update loads, a session finalises, a release loses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.drafts import LAUNCH, check, draft
from conformance.engine.groups import bring, grouped
from conformance.engine.steps import begin, bucket, end
from harness.bench import Bench
from harness.lanes.base import EngineHandle
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/draft")
READ = "not yet: speculative decoding needs a GPU"
SELECTS = ">=0.5.21 || miles"
BEFORE = ">=0.5.17,<0.5.21,!=miles"


def both(bench: Bench, e: EngineHandle, seed: int) -> dict[str, np.ndarray]:
    """Tensors of target and draft."""
    return {**bench.weights(seed, e), **draft(e, seed)}


def push(
    bench: Bench, e: EngineHandle, kind: str, named: Mapping[str, np.ndarray], *, opened: str = "", **fields: Any
) -> None:
    """One update between two looks at the checksums, in a session of its own that is opened for `opened`."""
    check(e)
    if opened:
        e.call("begin_weight_update", {"selector": opened})
    else:
        begin(bench, e)
    bench.note("push", e, kind=kind)
    bucket(bench, e, named, **fields)
    end(bench, e)
    check(e)


@scenarios.add("DRAFT-51", relation=READ, lanes=["fake"], versions=SELECTS, options=LAUNCH)
def three_selectors(bench: Bench) -> None:
    """Tensors of both, for all, for the target, for the draft."""
    for seed, selector in enumerate(("all", "target", "draft"), 1):
        push(bench, bench.e0, f"draft-{selector}", both(bench, bench.e0, seed), selector=selector)


@scenarios.add("DRAFT-52", relation=READ, lanes=["fake"], versions=BEFORE, options=LAUNCH)
def with_and_without_the_draft(bench: Bench) -> None:
    """Tensors of both, as usual and with disable_draft_model."""
    push(bench, bench.e0, "draft-all", both(bench, bench.e0, 1))
    push(bench, bench.e0, "draft-target", both(bench, bench.e0, 2), disable_draft_model=True)


def _broadcast(bench: Bench, kind: str) -> None:
    e = bench.e0
    with grouped(bench, [e]) as group:
        if group is None:
            bench.note("no_group")
            return
        check(e)
        begin(bench, e)
        bring(bench, group, e, kind, both(bench, e, 1), load_format="flattened_bucket")
        end(bench, e)
    check(e)


@scenarios.add("DRAFT-53", relation=READ, lanes=["fake"], needs=["groups"], versions=BEFORE, options=LAUNCH)
def a_broadcast_that_the_draft_does_not_hear(bench: Bench) -> None:
    """Tensors of both, in a group."""
    _broadcast(bench, "draft-stale")


@scenarios.add("DRAFT-54", relation=READ, lanes=["fake"], needs=["groups"], versions=SELECTS, options=LAUNCH)
def a_broadcast_for_both(bench: Bench) -> None:
    """Tensors of both, in a group."""
    _broadcast(bench, "draft-group")


@scenarios.add(
    "DRAFT-55",
    relation=READ,
    lanes=["fake"],
    versions=SELECTS,
    options={**LAUNCH, "device": "cuda", "quantisation": "mxfp8-trtllm"},
)
def a_draft_that_is_frozen(bench: Bench) -> None:
    """The target is sent again as it was: once in a session for the target, once in one for all."""
    from conformance.engine.deriv import held

    e = bench.engine(shape="qwen3")
    for kind, opened in (("frozen-apart", "target"), ("frozen-in-all", "all")):
        push(bench, e, kind, held(bench, e, 0), opened=opened, selector="target")


@scenarios.add(
    "DRAFT-56",
    relation=READ,
    lanes=["fake"],
    versions=">=0.5.17 || miles",
    options={**LAUNCH, "enable_memory_saver": True, "enable_weights_cpu_backup": True},
)
def released_and_resumed(bench: Bench) -> None:
    """With a backup of the target, and none of the draft."""
    e = bench.e0
    check(e)
    bench.note("away", e)
    for op in ("release_memory_occupation", "resume_memory_occupation"):
        e.call(op, {"tags": ["weights"]})
    check(e)
