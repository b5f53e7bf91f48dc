"""What refit-side scenarios do again and again: a fleet of which the truth is known, and questions after each refit."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.engine.steps import VALIDATED, know
from harness.bench import CANARY_TOKENS, Bench, generation
from harness.lanes.base import EngineHandle

__all__ = ["SEEDS", "VALIDATED", "ask", "fleet", "give_memory", "prepare", "question", "restart", "restart_dead"]

SEEDS = (0, 1, 2, 3)  # 0 is what engines are launched with: no refit may bring it, or nobody could tell
PATIENCE_S = 5.0  # for an answer from an engine that may be paused for good


def fleet(bench: Bench, engines: Sequence[EngineHandle], *labels: str, seeds: Sequence[int] = SEEDS) -> None:
    """Note the size of each engine and the truth of the prompts, and set the client up."""
    first = 0
    for engine in engines:
        dealt = tuple(range(first, first + engine.spec.tp))
        first += engine.spec.tp
        gpus = getattr(bench, "gpus", {}).get(engine.name, dealt)
        bench.note("engine", engine, tp=engine.spec.tp, gpus=list(gpus))
        know(bench, engine, *labels, seeds=seeds)
    assert bench.sut is not None


def prepare(bench: Bench, engines: int = 1, *labels: str) -> list[EngineHandle]:
    """A fleet of equal engines, with the truth of `labels` and of fresh-1, fresh-2, fresh-3."""
    handles = bench.fleet(engines)
    fleet(bench, handles, "fresh-1", "fresh-2", "fresh-3", *labels)
    return handles


def ask(bench: Bench, engine: EngineHandle, label: str, n: int = CANARY_TOKENS) -> None:
    """One canary prompt as traffic, `n` tokens, with little patience: a paused engine does not answer."""
    body = generation(bench.prompt(label), n)
    engine.call("generate", body, origin="traffic", timeout_s=PATIENCE_S)


def question(bench: Bench, engines: Sequence[EngineHandle], *labels: str, n: int = CANARY_TOKENS) -> None:
    """After a refit: what version does each engine show, and what does it answer?"""
    bench.barrier("after the refit")
    for engine in engines:
        engine.call("model_info", method="GET", timeout_s=PATIENCE_S)
        for label in labels:
            ask(bench, engine, label, n)


def give_memory(bench: Bench) -> None:
    """The trainer takes the memory. What the client fails at is noted, and the refit that follows is judged."""
    if "phase" not in bench.caps.optional:
        bench.unsupported("the adapter has no phase()")
    try:
        bench.sut.phase("train", 60.0)  # type: ignore[attr-defined]  # optional
    except Exception as error:
        bench.note("phase_failed", error=f"{type(error).__name__}: {error}")


def restart(bench: Bench, engine: EngineHandle) -> None:
    """The next incarnation, with the weights that the first was launched with; noted, since a client may ignore it."""
    engine.restart()
    bench.note("born", engine)


def restart_dead(bench: Bench, engines: Sequence[EngineHandle]) -> None:
    """What a supervisor does: a dead engine comes back."""
    for engine in engines:
        if not engine.alive:
            restart(bench, engine)
