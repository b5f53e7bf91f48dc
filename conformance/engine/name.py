"""Names, shapes and dtypes that are not what the model expects."""

from __future__ import annotations

import numpy as np

from conformance.engine.steps import VALIDATED, ask, device_names, know, push
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/name")
NORM = "model.norm.weight"


@scenarios.add("NAME-51", "NAME-57", relation=VALIDATED)
def unknown_and_no_names(bench: Bench) -> None:
    """A tensor of a module that does not exist; then no tensor at all."""
    e = bench.e0
    norm = bench.weights(1, e)[NORM]
    ask(bench, e, "unknown")
    push(bench, e, "unknown-name", {"model.layers.0.self_attn.nothing.weight": norm})
    ask(bench, e, "unknown")
    push(bench, e, "no-tensors", [{}] * bench.tp, None)
    ask(bench, e, "unknown")


@scenarios.add("NAME-52", "ERR-51", relation=VALIDATED, fatal=True)
def unknown_name_under_direct(bench: Bench) -> None:
    """The same name kills under load_format direct."""
    e = bench.e0
    norm = bench.weights(1, e)[NORM]
    push(bench, e, "direct-unknown-name", {"model.layers.0.self_attn.nothing.weight": norm}, "direct")
    e.call("model_info", method="GET")


@scenarios.add("NAME-53", relation=VALIDATED)
def half_of_a_set(bench: Bench) -> None:
    """Every other tensor."""
    e = bench.e0
    know(bench, e, "half")
    half = dict(list(bench.weights(1, e).items())[::2])
    push(bench, e, "half", half)
    ask(bench, e, "half")


@scenarios.add("NAME-54", "NAME-56", relation=VALIDATED)
def other_dtypes(bench: Bench) -> None:
    """All as float32; then norms as float32 among the others."""
    e = bench.e0
    know(bench, e, "cast", "mixed")
    wide = {name: np.asarray(tensor, dtype=np.float32) for name, tensor in bench.weights(1, e).items()}
    push(bench, e, "cast", wide, seeds=[1])
    ask(bench, e, "cast")
    mixed = {n: np.asarray(t, dtype=np.float32) if "norm" in n else t for n, t in bench.weights(0, e).items()}
    push(bench, e, "mixed", mixed, seeds=[0])
    ask(bench, e, "mixed")


@scenarios.add("NAME-55", "ERR-51", relation=VALIDATED, fatal=True)
def a_norm_of_three(bench: Bench) -> None:
    """Three values for 64."""
    e = bench.e0
    push(bench, e, "wrong-length", {NORM: bench.weights(1, e)[NORM][:3].copy()})
    e.call("model_info", method="GET")


@scenarios.add("NAME-58", relation=VALIDATED)
def device_names_under_direct(bench: Bench) -> None:
    """Fused names and local shards, a set of its own for every rank."""
    e = bench.e0
    know(bench, e, "direct")
    shards = [device_names(bench.weights(1, e), bench.tp, rank) for rank in range(bench.tp)]
    push(bench, e, "direct", shards, "direct", seeds=[1])
    ask(bench, e, "direct")
