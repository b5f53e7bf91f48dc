"""Whole refits in a row, the ones that exploration plants faults into."""

from __future__ import annotations

from conformance.refit.steps import VALIDATED, ask, give_memory, prepare, question, restart_dead
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/envelope", side="refit")

FEW = 3  # tokens of a canary: exploration runs this hundreds of times, and log-probabilities tell as well
ALWAYS = (
    "SESS-1", "SESS-3", "SESS-4", "SESS-71", "PAUSE-1", "PAUSE-2", "PAUSE-3", "PAUSE-5", "PAUSE-6", "CACHE-1",
    "CACHE-3", "CACHE-4", "VER-1", "VER-4", "VER-71", "RANK-1", "RANK-2", "IPC-1", "IPC-2", "IPC-3", "PART-1", "ERR-1",
    "ERR-2", "LIVE-2", "LOCK-2", "MEM-1", "MEM-2", "MEM-3", "NAME-71", "VERIF-1",
)  # fmt: skip


def refit_twice(bench: Bench, engines: int, *, away: bool = False) -> None:
    """A warm prompt, a running request, two refits, with questions after each. `away`: the trainer has the memory."""
    handles = prepare(bench, engines, "warm")
    for e in handles:
        ask(bench, e, "warm", FEW)
    running = [bench.traffic(e, "running", n=24) for e in handles]
    for number in (1, 2):
        if away and number == 1:
            give_memory(bench)
        bench.refit(number)
        question(bench, handles, f"fresh-{number}", "warm", n=FEW)
        restart_dead(bench, handles)
    for request in running:
        request.result(5.0)


@scenarios.add(*ALWAYS, relation=VALIDATED, explore=True)
def two_refits(bench: Bench) -> None:
    """One engine."""
    refit_twice(bench, 1)


@scenarios.add(
    *ALWAYS,
    relation="fake only: explored, which takes virtual time; real servers are two in refit/faults",
    explore=True,
    lanes=["fake"],
)
def two_refits_of_a_fleet(bench: Bench) -> None:
    """Two engines."""
    refit_twice(bench, 2)


@scenarios.add(
    *(rule for rule in ALWAYS if rule != "PAUSE-1"),  # the client paused the engine before the refit
    relation="fake only: the memory saver needs a GPU",
    explore=True,
    options={"enable_memory_saver": True},
)
def two_refits_from_released_memory(bench: Bench) -> None:
    """One engine, whose memory the trainer has when the first refit begins."""
    refit_twice(bench, 1, away=True)


@scenarios.add("VER-3", relation=VALIDATED)
def rollouts(bench: Bench) -> None:
    """The client's own generations: before and after a refit, after one that failed with nothing sent, and at last."""
    prepare(bench, 1, "rollout")
    if "rollout" not in bench.caps.optional:
        bench.unsupported("the adapter has no rollout()")
    _roll_out(bench)
    bench.refit(1)
    _roll_out(bench)
    bench.fault("e0:flush_cache#1:before:status500")
    bench.refit(2)
    _roll_out(bench)
    bench.refit(2)
    _roll_out(bench)


def _roll_out(bench: Bench) -> None:
    prompt = bench.prompt("rollout")
    made = bench.sut.rollout(prompt, 8)  # type: ignore[attr-defined]  # optional
    bench.note("rollout", prompt=prompt, tokens=list(made["tokens"]), version=str(made["version"]))
