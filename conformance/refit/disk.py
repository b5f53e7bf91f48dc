"""Refits over a disk that trainer and engines share."""

from __future__ import annotations

from conformance.engine.disk import UPDATE
from conformance.refit.envelope import ALWAYS, refit_twice
from conformance.refit.steps import VALIDATED, prepare, question
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("refit/disk", side="refit")
PAIR = "not yet: not run on two real servers"
# What speaks of payloads, of sessions, of several updates per refit, or of a label that comes before the last of them.
NOT_OF_A_FILE = (
    *("SESS-1", "SESS-3", "SESS-4", "SESS-71", "RANK-1", "RANK-2", "IPC-1", "IPC-2", "IPC-3"),
    *("MEM-1", "MEM-2", "MEM-3", "PAUSE-5", "CACHE-3", "VER-4", "VER-71", "LIVE-2"),
)
FROM_DISK = tuple(rule for rule in ALWAYS if rule not in NOT_OF_A_FILE)


@scenarios.add(*FROM_DISK, "DISK-1", "DISK-2", "DISK-3", "DISK-4", relation=VALIDATED, explore=True)
def two_refits_from_disk(bench: Bench) -> None:
    """One engine."""
    bench.transport = "disk"
    refit_twice(bench, 1)


@scenarios.add("DISK-1", "DISK-2", "DISK-3", relation=PAIR, lanes=["fake", "http"])
def one_of_two_reads_late(bench: Bench) -> None:
    """The second engine gets the call five seconds after the first; then one that never answers, and a refit after."""
    bench.transport = "disk"
    handles = prepare(bench, 2)
    bench.fault(f"e1:{UPDATE}#1:before:delay=5")
    bench.refit(1)
    question(bench, handles, "fresh-1")
    bench.fault(f"e1:{UPDATE}#1:after:hang")
    bench.refit(2, deadline_s=20.0)
    bench.refit(3)
    question(bench, handles, "fresh-2")
