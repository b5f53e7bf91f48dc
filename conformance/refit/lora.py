"""Refits of adapters: a new one after each step, requests under the newest name, and those of before going on."""

from __future__ import annotations

from conformance.adapters import LOAD, config, engine, know, tensors
from conformance.engine.lora import READ
from harness.bench import CANARY_TOKENS, Bench
from harness.lanes.base import EngineHandle
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/lora", side="refit")
ALL = ("LORA-1", "LORA-2", "LORA-3", "LORA-5")


def _prepared(bench: Bench, engines: int = 1) -> list[EngineHandle]:
    bench.transport = "lora"
    bench.adapter_config = config()
    handles = [engine(bench) for _ in range(engines)]
    if "rollout" not in bench.declared.optional:
        bench.unsupported("the adapter has no rollout()")
    first = 0
    for e in handles:
        bench.note("engine", e, tp=e.spec.tp, gpus=list(range(first, first + e.spec.tp)))
        know(bench, e, "rollout", adapters=(None, 1, 2, 3))
        first += e.spec.tp
    return handles


def _push(bench: Bench, e: EngineHandle, seed: int) -> None:
    bench.refit(seed, state=tensors(bench.weights(0, e), seed))


def _roll_out(bench: Bench, engines: int = 1) -> None:
    """A generation of the client's own on each engine. What it fails at is noted, and its calls are judged."""
    for _ in range(engines):
        try:
            bench.sut.rollout(bench.prompt("rollout"), CANARY_TOKENS)  # type: ignore[attr-defined]  # optional
        except Exception as error:
            bench.note("rollout_failed", error=f"{type(error).__name__}: {error}")


@scenarios.add(*ALL, relation=READ, lanes=["fake", "http"])
def five_steps(bench: Bench) -> None:
    """Each with a rollout."""
    (e,) = _prepared(bench)
    for step in range(5):
        _push(bench, e, 1 + step % 3)
        _roll_out(bench)


@scenarios.add("LORA-1", "LORA-4", "LORA-5", relation=READ, lanes=["fake", "http"])
def one_engine_of_two_refuses(bench: Bench) -> None:
    """And then nobody does."""
    handles = _prepared(bench, 2)
    _push(bench, handles[0], 1)
    _roll_out(bench, 2)
    bench.fault(f"e1:{LOAD}#1:before:status400")
    _push(bench, handles[0], 2)
    _roll_out(bench, 2)
    _push(bench, handles[0], 3)
    _roll_out(bench, 2)
