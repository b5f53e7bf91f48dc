"""What an engine derives from quantised weights: when it does, and what doing it again does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from conformance.engine.disk import read, shared
from conformance.engine.steps import ask, begin, end, know, push
from harness.bench import Bench, generation
from harness.lanes.base import EngineHandle
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/deriv")
GPU = "not yet: needs a GPU with fp8 kernels of this layout"
SEEN = "not yet: the lane has no such model (observed 0.5.23 on an H200, of hidden 256)"
SESSIONS = ">=0.5.21 || miles"
BLOCKS = {"device": "cuda", "quantisation": "fp8"}
TENSOR = {"device": "cuda", "quantisation": "fp8-tensor"}
ONLINE = {"device": "cuda", "quantisation": "fp8-online"}
COPIED = {"device": "cuda", "quantisation": "mxfp8"}
IN_PLACE = {"device": "cuda", "quantisation": "mxfp8-trtllm"}


def held(bench: Bench, engine: EngineHandle, seed: int) -> Mapping[str, np.ndarray]:
    """The weights of a seed as a quantised checkpoint holds them."""
    from fakes.engine.quantised import checkpoint

    return checkpoint(bench.weights(seed, engine), str(dict(engine.spec.options)["quantisation"]))


def qwen(bench: Bench) -> EngineHandle:
    """A model that loads scales of blocks; Llama does not."""
    return bench.engine(shape="qwen3")


@scenarios.add("DERIV-51", relation=GPU, lanes=["fake"], versions=SESSIONS, options=COPIED)
def a_session(bench: Bench) -> None:
    """A whole set, then its end."""
    e = qwen(bench)
    know(bench, e, "derived")
    push(bench, e, "derived-whole", held(bench, e, 1), seeds=[1])
    ask(bench, e, "derived")


@scenarios.add("DERIV-52", relation=GPU, lanes=["fake"], versions="<0.5.21,!=miles", options=COPIED)
def no_session(bench: Bench) -> None:
    """Nothing finalises what tensors brought."""
    e = qwen(bench)
    know(bench, e, "derived")
    push(bench, e, "derived-never", held(bench, e, 1))
    ask(bench, e, "derived")


@scenarios.add("DERIV-53", relation=GPU, lanes=["fake"], versions=SESSIONS, options=IN_PLACE)
def a_session_without_a_bucket(bench: Bench) -> None:
    """Begun and ended: what was final is finalised once more."""
    e = qwen(bench)
    know(bench, e, "before", "after")
    ask(bench, e, "before")
    bench.note("empty_session", e)
    begin(bench, e)
    end(bench, e)
    ask(bench, e, "after")


@scenarios.add("DERIV-54", relation=GPU, lanes=["fake"], versions=SESSIONS, options=IN_PLACE)
def a_session_for_one_layer(bench: Bench) -> None:
    """The layer that was not sent held the same weights, and loses them."""
    e = qwen(bench)
    know(bench, e, "layer")
    named = {name: tensor for name, tensor in held(bench, e, 0).items() if ".layers.0." in name}
    push(bench, e, "derived-part", named)
    ask(bench, e, "layer")


@scenarios.add("DERIV-55", relation=GPU, lanes=["fake"], options=COPIED)
def a_folder(bench: Bench) -> None:
    """A disk update finalises by itself."""
    e = qwen(bench)
    know(bench, e, "disk")
    with shared(bench) as disk:
        read(bench, disk, e, "derived-disk", held(bench, e, 1), seeds=[1])
        ask(bench, e, "disk")


@scenarios.add("DERIV-56", relation=SEEN, lanes=["fake"], options=BLOCKS)
def weights_that_were_not_quantised(bench: Bench) -> None:
    """As if the engine held bfloat16; then what it should have been."""
    e = qwen(bench)
    know(bench, e, "cast", "mended")
    push(bench, e, "derived-bf16", bench.weights(1, e))
    ask(bench, e, "cast")
    push(bench, e, "derived-mended", held(bench, e, 1), seeds=[1])
    ask(bench, e, "mended")


@scenarios.add("DERIV-57", relation=SEEN, lanes=["fake"], options=TENSOR, fatal=True)
def a_scale_for_each_tensor(bench: Bench) -> None:
    """Answers as it was launched, and takes nothing else."""
    e = bench.e0
    know(bench, e, "launched")
    ask(bench, e, "launched")
    push(bench, e, "derived-tensor", held(bench, e, 1))


@scenarios.add("DERIV-58", relation=SEEN, lanes=["fake"], versions=SESSIONS, options=TENSOR, fatal=True)
def an_empty_session_transposes_again(bench: Bench) -> None:
    """Both calls are answered 200."""
    e = bench.e0
    begin(bench, e)
    end(bench, e)
    bench.note("asked", e, kind="turned")
    e.call("generate", generation(bench.prompt("turned"), 1))


@scenarios.add("DERIV-59", relation=SEEN, lanes=["fake"], versions=SESSIONS, options=ONLINE, fatal=True)
def an_empty_session_quantises_again(bench: Bench) -> None:
    """What was quantised when it was loaded."""
    e = bench.e0
    begin(bench, e)
    bench.note("asked", e, kind="quantised-again")
    end(bench, e)


@scenarios.add("DERIV-60", relation=SEEN, lanes=["fake"], options=BLOCKS)
def a_llama_of_blocks(bench: Bench) -> None:
    """Its scales are skipped, whatever is sent."""
    e = bench.e0
    know(bench, e, "llama")
    push(bench, e, "derived-llama", held(bench, e, 1))
    ask(bench, e, "llama")
