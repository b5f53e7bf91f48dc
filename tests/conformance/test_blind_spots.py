"""No tensor may be left out unseen: every one of every shape, tied and untied, from answers alone."""

from __future__ import annotations

import re

import numpy as np
import pytest

from conformance.plants.client_content import exporting
from fakes.tiny import tiny_config, tiny_weights
from tests.conformance.running import book, run
from tests.conformance.test_plants import without_trainer

SHAPES = {
    "llama": ("llama", False),
    "tied-llama": ("llama", True),
    "qwen2": ("qwen2", True),
    "untied-qwen2": ("qwen2", False),
    "qwen3": ("qwen3", False),
    "tied-qwen3": ("qwen3", True),
}
OWN = {
    "llama": {"input_layernorm.weight", "q_proj.weight", "down_proj.weight"},
    "qwen2": {"q_proj.bias", "k_proj.bias", "v_proj.bias"},
    "qwen3": {"q_norm.weight", "k_norm.weight"},
}
REFITS = {"llama": "untied-llama", "qwen2": "tied-qwen2", "qwen3": "qwen3"}


def names_of(shape: str, tied: bool) -> list[str]:
    return list(tiny_weights(tiny_config(shape, tied, "bfloat16"), 1))


@pytest.mark.parametrize("made", SHAPES)
def test_each_tensor_left_out_changes_an_answer_of_a_black_box(made: str) -> None:
    scenario = book().scenarios[f"engine/verif/leave-out-each-tensor-of-{made}"]
    history = without_trainer(run(scenario, "0.5.23").without_core())
    left_out = {note.get("tensor") for note in history.facts("push", kind="omitted")}
    names = names_of(*SHAPES[made])
    assert left_out == set(names)
    assert any(name.endswith("model.norm.weight") for name in names)
    assert all(any(name.endswith(own) for name in names) for own in OWN[SHAPES[made][0]])
    verdict = book().rules["VERIF-2"].judge(history)
    assert (verdict.status, verdict.exercised) == ("held", len(names))


KINDS = [(shape, name) for shape in REFITS for name in names_of(shape, shape == "qwen2") if ".layers.0." not in name]


@pytest.mark.parametrize(("shape", "name"), KINDS, ids=[f"{s}-{n}" for s, n in KINDS])
def test_a_client_that_never_sends_it_is_found_out_and_the_tensor_named(shape: str, name: str) -> None:
    """Its own check of completeness does not see it; where it is alone in a bucket, the bucket before goes again."""
    before: dict[int, list[tuple[str, np.ndarray]]] = {}

    def without(_kit: object, rank: int, named: list[tuple[str, np.ndarray]]) -> list[tuple[str, np.ndarray]]:
        before[rank] = [(n, t) for n, t in named if n != name] or before[rank]
        return before[rank]

    lose = exporting(without)
    scenario = book().scenarios[f"refit/state/{REFITS[shape]}"]
    with lose():
        history = run(scenario, "0.5.23")
    verdict = book().rules["NAME-4"].judge(history)
    assert verdict.status == "violated"
    assert verdict.actual.endswith(f"never sent: {name}")
    blind = without_trainer(history.without_core())
    assert book().rules["NAME-4"].judge(blind).status == "violated"
    assert re.search(r"of (no set|seeds \[0\])$", book().rules["NAME-4"].judge(blind).actual)
