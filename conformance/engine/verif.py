"""Checker, reading by name, and whether the canary sees every tensor."""

from __future__ import annotations

from conformance.engine.steps import VALIDATED, ask, know, load, push
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/verif")
SLOW = "fake only: a server per shape takes half a minute"


@scenarios.add("VERIF-51", relation=VALIDATED)
def an_unknown_action(bench: Bench) -> None:
    """Refused, and the engine lives."""
    bench.e0.call("weights_checker", {"action": "bogus"})
    bench.e0.call("model_info", method="GET")


@scenarios.add("VERIF-52", relation=VALIDATED, versions=">=0.5.23")
def checksums(bench: Bench) -> None:
    """Of one set, of another, of the first again."""
    e = bench.e0
    for seed in (0, 1, 0):
        load(bench, e, seed)
        e.call("weights_checker", {"action": "checksum"})


@scenarios.add("VERIF-53", relation=VALIDATED)
def by_name(bench: Bench) -> None:
    """A norm, a part of a fused matrix, and a name that does not exist."""
    e = bench.e0
    weights = bench.weights(e.spec.seed, e)
    for name in ("model.norm.weight", "model.layers.0.self_attn.k_proj.weight"):
        bench.note("by_name", e, tensor=name, first=float(weights[name].flat[0]))
        e.call("get_weights_by_name", {"name": name, "truncate_size": 1})
    bench.note("by_name", e, tensor="nope", first=None)
    e.call("get_weights_by_name", {"name": "nope"})


def _leave_out_each(bench: Bench, shape: str, tied: bool = False) -> None:
    """Everything of seed 1 but one tensor, for every tensor; the one keeps what seed 0 has."""
    e = bench.engine(shape=shape, tied=tied)
    old, new = bench.weights(0, e), bench.weights(1, e)
    know(bench, e, "omitted", seeds=(1,))
    for name in new:
        push(bench, e, "reset", {name: old[name]})
        rest = {other: tensor for other, tensor in new.items() if other != name}
        push(bench, e, "omitted", rest, note={"tensor": name, "seed": 1})
        ask(bench, e, "omitted")


@scenarios.add("VERIF-2", relation=VALIDATED)
def leave_out_each_tensor_of_llama(bench: Bench) -> None:
    """Untied head, no biases."""
    _leave_out_each(bench, "llama")


@scenarios.add("VERIF-2", relation=SLOW, lanes=["fake"])
def leave_out_each_tensor_of_tied_llama(bench: Bench) -> None:
    """The embedding is the head."""
    _leave_out_each(bench, "llama", tied=True)


@scenarios.add("VERIF-2", relation=SLOW, lanes=["fake"])
def leave_out_each_tensor_of_qwen2(bench: Bench) -> None:
    """Biases of q, k and v; tied head."""
    _leave_out_each(bench, "qwen2", tied=True)


@scenarios.add("VERIF-2", relation=SLOW, lanes=["fake"])
def leave_out_each_tensor_of_untied_qwen2(bench: Bench) -> None:
    """Biases of q, k and v, and a head of its own."""
    _leave_out_each(bench, "qwen2")


@scenarios.add("VERIF-2", relation=SLOW, lanes=["fake"])
def leave_out_each_tensor_of_qwen3(bench: Bench) -> None:
    """Norms of q and k per head."""
    _leave_out_each(bench, "qwen3")


@scenarios.add("VERIF-2", relation=SLOW, lanes=["fake"])
def leave_out_each_tensor_of_tied_qwen3(bench: Bench) -> None:
    """Norms of q and k per head; tied head."""
    _leave_out_each(bench, "qwen3", tied=True)
