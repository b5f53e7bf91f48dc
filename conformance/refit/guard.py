"""Set-ups that cannot work, and the transport of those that can."""

from __future__ import annotations

from typing import Any

from conformance.refit.steps import prepare, question
from harness.bench import Bench
from harness.scenario import ScenarioList
from harness.versions import version_matches

scenarios = ScenarioList("refit/guard", side="refit", needs=["groups"])
FAKE = "fake only: nothing of it reaches an engine, or reaches it as in the other scenarios"
REFUSED = (
    ("nodes_per_engine", 2),
    ("data_parallel_size", 2),
    ("pipeline_parallel_size", 2),
    ("expert_parallel_size", 2),
    ("pause_mode", "in_place"),
    ("kv_scales", {"k": 1.0}),
    ("tensor_parallel_size", 7),
    ("transport", "carrier-pigeon"),
)
CELLS = (
    (True, "megatron", "auto", "tensor"),
    (True, "fsdp2", "auto", "tensor"),
    (True, "megatron", "distributed", ""),
    (False, "megatron", "auto", "distributed"),
    (False, "megatron", "distributed", "distributed"),
    (False, "megatron", "tensor", ""),
    (False, "fsdp2", "auto", ""),
    (False, "fsdp2", "distributed", ""),
    (False, "megatron", "checkpoint-engine", "checkpoint-engine"),
    (True, "megatron", "checkpoint-engine", ""),
    (False, "megatron", "disk", "disk"),
    (True, "fsdp2", "disk", "disk"),
    (False, "fsdp2", "disk", ""),
)


def setup_of(bench: Bench, **changes: Any) -> dict[str, Any]:
    """A set-up that works, with these changes."""
    plain = {
        "colocated": True,
        "trainer": "megatron",
        "transport": "auto",
        "nodes_per_engine": 1,
        "tensor_parallel_size": bench.tp,
        "data_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "expert_parallel_size": 1,
        "pause_mode": "retract" if version_matches(bench.version, ">=0.5.21") else "abort",
        "kv_scales": None,
        "quantisation": {"scheme": "bf16"},
    }
    return {**plain, **changes}


@scenarios.add("GUARD-1", relation=FAKE, lanes=["fake"])
def what_cannot_be_refitted(bench: Bench) -> None:
    """Each alone, and fsdp2 beside separate engines."""
    bench.fleet(1)
    for key, value in REFUSED:
        bench.construct(setup_of(bench, **{key: value}), names=key)
    bench.construct(setup_of(bench, trainer="fsdp2", colocated=False), names="fsdp2")


@scenarios.add("GUARD-3", relation=FAKE, lanes=["fake"])
def a_key_is_missing_or_misspelt(bench: Bench) -> None:
    """Each key in turn."""
    bench.fleet(1)
    whole = setup_of(bench)
    for key in whole:
        bench.construct({other: value for other, value in whole.items() if other != key}, names=key, missing=key)
    bench.construct({**whole, "tensor_paralel_size": 1}, names="tensor_paralel_size", missing="")


@scenarios.add("GUARD-2", relation=FAKE, lanes=["fake"])
def where_and_what_decides(bench: Bench) -> None:
    """Every cell that says something: a refit by the transport that it names, or a refusal."""
    handles = prepare(bench, 1)
    for number, (colocated, trainer, asked, transport) in enumerate(CELLS):
        setup = setup_of(bench, colocated=colocated, trainer=trainer, transport=asked)
        if bench.construct(setup, transport=transport, names="" if transport else asked):
            bench.refit(1 + number % 2)
            question(bench, handles, f"fresh-{1 + number % 3}", n=3)
