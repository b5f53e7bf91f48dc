"""Warm prompts and running requests around a refit."""

from __future__ import annotations

from conformance.engine.steps import BUCKET
from conformance.refit.steps import VALIDATED, ask, prepare, question
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/cache", side="refit")


@scenarios.add("CACHE-4", "VERIF-1", relation=VALIDATED)
def a_warm_prompt(bench: Bench) -> None:
    """Warmed before each refit, asked after it."""
    (e,) = prepare(bench, 1, "warm-1", "warm-2")
    for number in (1, 2):
        ask(bench, e, "warm-1")
        ask(bench, e, "warm-2")
        bench.refit(number)
        question(bench, [e], "warm-1", "warm-2", f"fresh-{number}")


@scenarios.add("CACHE-4", "VERIF-1", relation="fake only: not run on a real engine yet", lanes=["fake", "http"])
def a_request_right_before_the_pause(bench: Bench) -> None:
    """A short request is answered when the client is about to pause: what it cached is there after the pause only."""
    (e,) = prepare(bench, 1, "late")
    requests = []
    bench.when(e, "pause_generation", 1, lambda: requests.append(bench.traffic(e, "late", n=2)))
    bench.fault("e0:pause_generation#1:before:delay=1")
    bench.refit(1)
    for request in requests:
        request.result(60.0)
    question(bench, [e], "late", "fresh-1")


@scenarios.add("PAUSE-3", "PAUSE-5", "CACHE-3", "VER-1", relation=VALIDATED)
def requests_that_run(bench: Bench) -> None:
    """Three requests are under way when the refit begins, and one arrives during it."""
    (e,) = prepare(bench, 1)
    running = [bench.traffic(e, f"running-{n}", n=200) for n in range(3)]
    e.sleep(0.1)
    bench.refit(1)
    for request in running:
        request.result(60.0)
    question(bench, [e], "fresh-1")


@scenarios.add(
    "CACHE-1",
    "VERIF-1",
    relation="fake only: certain in the fake, a matter of milliseconds in the real engine",
    lanes=["fake", "http"],
    versions="<0.5.21 || miles",
    options={"stale_batch_steps": 40},
)
def right_after_an_answer(bench: Bench) -> None:
    """The batch of the last answer is not cleaned up yet: under an abort pause the first flush is refused."""
    (e,) = prepare(bench, 1)
    ask(bench, e, "fresh-2")
    bench.refit(1)
    question(bench, [e], "fresh-1")


@scenarios.add("PART-71", "PAUSE-3", "VERIF-1", relation=VALIDATED)
def requests_that_arrive(bench: Bench) -> None:
    """Some before the refit, some with its first bucket, some with its second, which takes two seconds."""
    labels = [f"meanwhile-{n}" for n in range(12)]
    (e,) = prepare(bench, 1, *labels)
    requests = [bench.traffic(e, label, n=2) for label in labels[:4]]

    def arrive(some: list[str]) -> None:
        requests.extend(bench.traffic(e, label, n=2) for label in some)

    bench.when(e, BUCKET, 1, lambda: arrive(labels[4:8]))
    bench.when(e, BUCKET, 2, lambda: arrive(labels[8:]))
    bench.fault(f"e0:{BUCKET}#2:before:delay=2")
    bench.refit(1)
    for request in requests:
        request.result(60.0)
    question(bench, [e], "fresh-1")
