"""Refits over a group of the trainer and all engine ranks: disaggregated engines."""

from __future__ import annotations

from conformance.engine.groups import INIT, UPDATE
from conformance.refit.envelope import ALWAYS, refit_twice
from conformance.refit.steps import VALIDATED, prepare, question, restart_dead
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/coll", side="refit", needs=["groups"])
PAIR = "not yet: not run on two real servers"
GPU = "fake only: NCCL needs a GPU"
BY_PAYLOAD = frozenset({"RANK-1", "RANK-2", "IPC-1", "IPC-2", "IPC-3", "MEM-1", "MEM-2"})
MINE = ("COLL-1", "COLL-3", "COLL-8", "COLL-13", "COLL-14")
OVER_A_GROUP = (*(rule for rule in ALWAYS if rule not in BY_PAYLOAD), *MINE)


@scenarios.add(*OVER_A_GROUP, "COLL-2", "COLL-6", "COLL-7", relation=VALIDATED, explore=True)
def two_refits_over_a_group(bench: Bench) -> None:
    """One engine."""
    bench.transport = "distributed"
    refit_twice(bench, 1)


@scenarios.add("COLL-9", "COLL-2", *MINE, relation=VALIDATED, lanes=["fake", "http", "sglang-cpu"])
def one_of_two_refuses(bench: Bench) -> None:
    """To join, and then an update: the other one is waiting for the group already."""
    bench.transport = "distributed"
    handles = prepare(bench, 2)
    bench.fault(f"e1:{INIT}#1:before:status400")
    bench.refit(1)
    bench.refit(2)
    question(bench, handles, "fresh-1")
    bench.fault(f"e0:{UPDATE}#2:before:status500")
    bench.refit(1)
    bench.refit(3)
    question(bench, handles, "fresh-2")


@scenarios.add("COLL-2", "COLL-14", *MINE, relation=PAIR, lanes=["fake", "http"])
def the_layout_changes(bench: Bench) -> None:
    """An engine is replaced between two refits, twice: each time the group is made anew."""
    bench.transport = "distributed"
    handles = prepare(bench, 2)
    for number, label in ((1, "fresh-1"), (2, "fresh-2"), (3, "fresh-3")):
        bench.refit(number)
        question(bench, handles, label)
        if number < 3:
            handles[number - 1].restart()


@scenarios.add("COLL-2", "COLL-1", relation=VALIDATED)
def the_trainer_is_replaced(bench: Bench) -> None:
    """It dies without a farewell; its engine is still in the old group when the next trainer comes."""
    bench.transport = "distributed"
    handles = prepare(bench, 1)
    bench.refit(1)
    question(bench, handles, "fresh-1")
    bench.replace_sut()
    bench.refit(2)
    question(bench, handles, "fresh-2")


@scenarios.add("COLL-7", relation=VALIDATED)
def an_engine_never_comes(bench: Bench) -> None:
    """To the group, and then to a broadcast."""
    bench.transport = "distributed"
    handles = prepare(bench, 1)
    bench.fault(f"e0:{INIT}#1:before:hang")
    bench.refit(1, deadline_s=20.0)
    bench.refit(2)
    question(bench, handles, "fresh-1")
    bench.fault(f"e0:{UPDATE}#1:before:hang")
    bench.refit(1, deadline_s=20.0)
    bench.refit(3)
    question(bench, handles, "fresh-2")


@scenarios.add("COLL-5", relation=VALIDATED)
def a_rank_that_broadcasts_nothing(bench: Bench) -> None:
    """Three trainer ranks; one of them is the source."""
    bench.transport = "distributed"
    bench.spare_ranks = 1
    handles = prepare(bench, 1)
    bench.note("ragged")
    for number in (1, 2):
        bench.refit(number)
        question(bench, handles, f"fresh-{number}")


@scenarios.add("COLL-10", "COLL-1", relation=VALIDATED)
def strided_views(bench: Bench) -> None:
    """The export gives views of transposed memory."""
    _strided(bench)


@scenarios.add("COLL-10", relation=GPU, lanes=["fake"], options={"device": "cuda"})
def strided_views_on_gpus(bench: Bench) -> None:
    """The same with NCCL, which refuses them; a copy that nobody keeps may be gone before it was sent."""
    _strided(bench)


def _strided(bench: Bench) -> None:
    bench.transport, bench.transposed = "distributed", True
    handles = prepare(bench, 1)
    bench.note("transposed")
    for number in (1, 2):
        bench.refit(number)
        question(bench, handles, f"fresh-{number}")


@scenarios.add("COLL-4", "COLL-12", "COLL-6", relation=GPU, lanes=["fake"], options={"device": "cuda"})
def on_gpus(bench: Bench) -> None:
    """NCCL on both sides; the trainer's default group was made eagerly, for a device."""
    bench.transport = "distributed"
    handles = prepare(bench, 1)
    bound = bench.kit.groups.default.bound_device_id
    bench.note("bound_default_group")
    bench.note("nccl")
    running = bench.traffic(handles[0], "running", n=24)
    for number in (1, 2):
        bench.refit(number)
        question(bench, handles, f"fresh-{number}")
        bench.note("default_group", bound=str(bench.kit.groups.default.bound_device_id), expected=str(bound))
    running.result(5.0)
    env = bench.kit.groups.env
    bench.note("environment", transport="distributed", cumem=env.get("NCCL_CUMEM_ENABLE"), expected="0")


@scenarios.add("COLL-12", relation="fake only: the trainer's environment is the harness's elsewhere", lanes=["fake"])
def nothing_to_do_with_nccl(bench: Bench) -> None:
    """A colocated refit leaves NCCL's environment alone."""
    handles = prepare(bench, 1)
    bench.refit(1)
    question(bench, handles, "fresh-1")
    env = bench.kit.groups.env
    bench.note("environment", transport="tensor", cumem=env.get("NCCL_CUMEM_ENABLE"), expected=None)


@scenarios.add("COLL-11", relation="fake only: the lock actor is the trainer kit's", lanes=["fake"])
def somebody_else_broadcasts(bench: Bench) -> None:
    """The lock is held: for longer than the refit may take, then by a holder whose lease ends; then a refit fails."""
    bench.transport = "distributed"
    handles = prepare(bench, 1)
    bench.kit.lock.try_acquire("another trainer", 100.0)
    bench.note("lock_held", index=0, owner="another trainer")
    bench.refit(1, deadline_s=20.0)
    bench.kit.lock.release("another trainer")
    bench.kit.lock.try_acquire("a trainer that died", 2.0)
    bench.refit(2)
    question(bench, handles, "fresh-1")
    bench.fault(f"e0:{UPDATE}#1:before:status400")
    bench.refit(3)
    bench.refit(1)
    question(bench, handles, "fresh-2")


@scenarios.add("COLL-6", "COLL-1", "COLL-5", relation=PAIR, lanes=["fake", "http"])
def an_engine_dies_in_the_group(bench: Bench) -> None:
    """In the middle of a transfer; its next incarnation is in the next group."""
    bench.transport = "distributed"
    handles = prepare(bench, 2)
    running = bench.traffic(handles[0], "running", n=24)
    bench.note("ragged")
    bench.fault(f"e1:{UPDATE}#2:before:die")
    bench.refit(1)
    restart_dead(bench, handles)
    bench.refit(2)
    question(bench, handles, "fresh-1")
    running.result(5.0)
