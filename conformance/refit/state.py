"""States of every kind: mixed dtypes, other orders and sizes, auxiliary tensors, nothing, and less than all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from conformance.refit.steps import PATIENCE_S, VALIDATED, fleet, prepare, question
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/state", side="refit")
State = Mapping[str, np.ndarray]
ROWS = 4  # of a matrix are read back, numbers of a vector


def _hand_over(bench: Bench, index: int, seed: int | None, state: State, *kinds: str) -> None:
    bench.note("state", index=index, kinds=list(kinds))
    bench.refit(seed, state=state)


def wide(state: State) -> dict[str, np.ndarray]:
    """All tensors as float32, same values."""
    return {name: np.asarray(tensor, dtype=np.float32) for name, tensor in state.items()}


@scenarios.add("NAME-1", "NAME-3", "NAME-71", "VERIF-1", relation=VALIDATED)
def dtypes_and_orders(bench: Bench) -> None:
    """Norms in float32 among bfloat16; all in float32, twice the bytes; another order."""
    handles = prepare(bench, 1)
    one, two, three = (bench.weights(seed) for seed in (1, 2, 3))
    norms_wide = {n: np.asarray(t, dtype=np.float32) if "norm" in n else t for n, t in one.items()}
    _hand_over(bench, 0, 1, norms_wide, "mixed")
    question(bench, handles, "fresh-1")
    _hand_over(bench, 1, 2, wide(two), "float32")
    question(bench, handles, "fresh-2")
    _hand_over(bench, 2, 3, dict(reversed(three.items())), "reversed")
    question(bench, handles, "fresh-3")


@scenarios.add("NAME-2", "NAME-71", "ERR-1", "VERIF-1", relation=VALIDATED)
def nothing_and_less_than_all(bench: Bench) -> None:
    """A whole set; then an empty state and one that lacks a layer, which must fail; then a whole set again."""
    handles = prepare(bench, 1)
    _hand_over(bench, 0, 1, bench.weights(1), "plain")
    question(bench, handles, "fresh-1")
    _hand_over(bench, 1, None, {}, "empty")
    question(bench, handles, "fresh-2")
    partial = {name: tensor for name, tensor in bench.weights(2).items() if ".layers.1." not in name}
    _hand_over(bench, 2, None, partial, "partial")
    _hand_over(bench, 3, 2, bench.weights(2), "plain")
    question(bench, handles, "fresh-3")


@scenarios.add("VERIF-3", "NAME-71", relation=VALIDATED)
def read_back(bench: Bench) -> None:
    """Two refits; after each every tensor is read by name. An answer cannot tell a norm that is off by one per cent."""
    [e] = prepare(bench, 1)
    for number in (1, 2):
        bench.refit(number)
        for name, tensor in bench.weights(number, e).items():
            rows = np.asarray(tensor[:ROWS], dtype=np.float32).tolist()
            bench.note("stored", e, tensor=name, seed=number, rows=rows)
            e.call("get_weights_by_name", {"name": name, "truncate_size": ROWS}, timeout_s=PATIENCE_S)


def _auxiliary(bench: Bench, shape: str, tied: bool) -> None:
    e = bench.engine(shape=shape, tied=tied)
    fleet(bench, [e], "fresh-1", "fresh-2")
    for number in (1, 2):
        _hand_over(bench, number - 1, number, bench.weights(number, e), "auxiliary")
        question(bench, [e], f"fresh-{number}")


@scenarios.add("NAME-4", "NAME-71", relation=VALIDATED)
def untied_llama(bench: Bench) -> None:
    """An output head of its own."""
    _auxiliary(bench, "llama", False)


@scenarios.add("NAME-4", "NAME-71", relation="fake only: a server per shape takes half a minute", lanes=["fake"])
def tied_qwen2(bench: Bench) -> None:
    """Biases of q, k and v; a tied head."""
    _auxiliary(bench, "qwen2", True)


@scenarios.add("NAME-4", "NAME-71", relation="fake only: a server per shape takes half a minute", lanes=["fake"])
def qwen3(bench: Bench) -> None:
    """Norms of q and k per head."""
    _auxiliary(bench, "qwen3", False)
