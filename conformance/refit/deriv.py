"""Refits of quantised engines: pairs, what is derived from them, and a scheme that is never guessed."""

from __future__ import annotations

from typing import Any

from conformance.refit.guard import setup_of
from conformance.refit.steps import fleet, question
from harness.bench import Bench
from harness.lanes.base import EngineHandle
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/deriv", side="refit")
GPU = "not yet: needs GPUs with fp8 kernels of this layout"
NOTHING = "fake only: nothing of it reaches an engine"
SESSIONS = ">=0.5.21 || miles"
REFUSED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("scheme", {"quantisation": {}}),
    ("schema", {"quantisation": {"schema": "mxfp8"}}),
    ("mxpf8", {"quantisation": {"scheme": "mxpf8"}}),
    ("scheme", {"quantisation": {"scheme": ""}}),
    ("skip", {"quantisation": {"scheme": "mxfp8", "skip": "lm_head"}}),
    ("trainer", {"quantisation": {"scheme": "mxfp8"}, "trainer": "fsdp2"}),
    ("quantisation", {"quantisation": {"scheme": "mxfp8"}, "colocated": False, "transport": "distributed"}),
)


def _able(bench: Bench) -> None:
    if "quantisation" not in bench.declared.optional:
        bench.unsupported("the adapter sends no quantised weights")


def _prepared(bench: Bench) -> list[EngineHandle]:
    """An engine and the client, which is asked first: what it cannot send it need not be set up for."""
    _able(bench)
    handles = [bench.engine(shape="qwen3")]
    fleet(bench, handles, "fresh-1", "fresh-2", "fresh-3")
    return handles


@scenarios.add(
    "DERIV-1",
    "DERIV-2",
    relation=GPU,
    lanes=["fake"],
    versions=SESSIONS,
    options={"device": "cuda", "quantisation": "mxfp8"},
)
def scales_that_are_copied(bench: Bench) -> None:
    """Two sets."""
    handles = _prepared(bench)
    for number in (1, 2):
        bench.refit(number, state=bench.weights(number, handles[0]))
        question(bench, handles, f"fresh-{number}")


@scenarios.add("DERIV-1", "DERIV-2", relation=GPU, lanes=["fake"], options={"device": "cuda", "quantisation": "fp8"})
def scales_of_blocks(bench: Bench) -> None:
    """float32 among fp8 and bfloat16; every version can, since nothing is derived."""
    handles = _prepared(bench)
    for number in (1, 2):
        bench.refit(number, state=bench.weights(number, handles[0]))
        question(bench, handles, f"fresh-{number}")


@scenarios.add(
    "DERIV-3",
    relation=GPU,
    lanes=["fake"],
    versions=SESSIONS,
    options={"device": "cuda", "quantisation": "mxfp8-trtllm"},
)
def the_same_set_again_and_again(bench: Bench) -> None:
    """Weights that are shuffled where they lie."""
    handles = _prepared(bench)
    for number in range(3):
        bench.refit(1, state=bench.weights(1, handles[0]))
        question(bench, handles, f"fresh-{number + 1}")


@scenarios.add("DERIV-4", relation=NOTHING, lanes=["fake"], needs=["groups"])
def a_scheme_that_is_missing_or_misspelt(bench: Bench) -> None:
    """And one that nobody could send."""
    _able(bench)
    bench.fleet(1)
    for word, changes in REFUSED:
        bench.construct(setup_of(bench, **changes), names=word)
