"""The gate: the trainer scores what engines say after a refit."""

from __future__ import annotations

from conformance.refit.steps import PATIENCE_S, ask, fleet
from harness.bench import CANARY_TOKENS, Bench, answer_of, generation
from harness.lanes.base import EngineHandle
from harness.scenario import ScenarioList
from harness.scoring import trainer_logprobs

scenarios = ScenarioList("refit/gate", side="refit")


def _score(bench: Bench, engine: EngineHandle, label: str, seed: int) -> None:
    """Ask, and let the trainer's model say what it thinks of the answer."""
    prompt = bench.prompt(label)
    outcome = engine.call("generate", generation(prompt, CANARY_TOKENS), origin="traffic", timeout_s=PATIENCE_S)
    tokens = answer_of(outcome)["tokens"] or ()
    logprobs = trainer_logprobs(engine.spec, seed, prompt, tokens)
    bench.note("scored", engine, seed=seed, prompt=list(prompt), tokens=list(tokens), logprobs=list(logprobs))


def _gate(bench: Bench, engine: EngineHandle) -> None:
    """Two refits. One prompt was asked before each: its KV is of the weights before."""
    fleet(bench, [engine])
    for number in (1, 2):
        ask(bench, engine, "warm")
        bench.refit(number, state=bench.weights(number, engine))
        _score(bench, engine, "warm", number)
        _score(bench, engine, f"fresh-{number}", number)


@scenarios.add("VERIF-4", relation="not yet: the real lane has not run it", lanes=["fake", "http"])
def as_it_is_served(bench: Bench) -> None:
    """bfloat16: rounding alone makes about 1.007."""
    _gate(bench, bench.engine())


@scenarios.add("VERIF-4", relation="fake only: exact where nothing is rounded", lanes=["fake"])
def in_float32(bench: Bench) -> None:
    """Trainer and engine compute the same."""
    _gate(bench, bench.engine(dtype="float32"))


@scenarios.add(
    "VERIF-4",
    relation="not yet: needs GPUs with fp8 kernels of this layout",
    lanes=["fake"],
    options={"device": "cuda", "quantisation": "fp8"},
)
def of_pairs(bench: Bench) -> None:
    """The trainer's forward pass has the dequantised weights."""
    if "quantisation" not in bench.declared.optional:
        bench.unsupported("the adapter sends no quantised weights")
    _gate(bench, bench.engine(shape="qwen3"))
