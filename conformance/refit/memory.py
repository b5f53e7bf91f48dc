"""The colocated cycle: the trainer takes the memory, the refit gives it back."""

from __future__ import annotations

from conformance.engine.steps import BUCKET
from conformance.refit.steps import VALIDATED, give_memory, prepare, question, restart_dead
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/memory", side="refit")


@scenarios.add("MEM-1", "MEM-2", "MEM-3", "PAUSE-6", "VERIF-1", relation=VALIDATED)
def release_and_refit(bench: Bench) -> None:
    """Two whole cycles."""
    handles = prepare(bench, 1)
    for number in (1, 2):
        give_memory(bench)
        bench.refit(number)
        question(bench, handles, f"fresh-{number}")


@scenarios.add("MEM-71", "MEM-1", "ERR-1", relation=VALIDATED)
def the_onload_fails(bench: Bench) -> None:
    """Weights are not given memory again; after that failure comes a good refit."""
    handles = prepare(bench, 1)
    give_memory(bench)
    bench.fault("e0:resume_memory_occupation#1:before:status400")
    bench.refit(1)
    question(bench, handles, "fresh-1")
    restart_dead(bench, handles)
    bench.refit(2)
    question(bench, handles, "fresh-2")


@scenarios.add("MEM-71", "MEM-1", relation=VALIDATED, lanes=["fake", "http", "sglang-cpu"])
def the_onload_fails_on_one_of_two(bench: Bench) -> None:
    """The other one gets all of its memory back."""
    handles = prepare(bench, 2)
    give_memory(bench)
    bench.fault("e1:resume_memory_occupation#1:before:status400")
    bench.refit(1)
    question(bench, handles, "fresh-1")


@scenarios.add("MEM-71", "MEM-1", "MEM-2", "PAUSE-6", "PART-1", relation=VALIDATED)
def a_refit_fails_on_released_memory(bench: Bench) -> None:
    """The second bucket fails; the next refit brings everything back."""
    handles = prepare(bench, 1)
    give_memory(bench)
    bench.fault(f"e0:{BUCKET}#2:before:status500")
    bench.refit(1)
    question(bench, handles, "fresh-1")
    restart_dead(bench, handles)
    bench.refit(2)
    question(bench, handles, "fresh-2")
