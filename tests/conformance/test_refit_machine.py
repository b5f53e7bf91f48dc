"""Refits in any order, among faults, traffic, restarts and released memory: the reference client breaks no promise."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from conformance.engine.steps import know
from conformance.refit.steps import give_memory, question, restart_dead
from harness.reference.adapter import ReferenceSut
from tests.conformance.machine import OnTheFake
from tests.conformance.running import book

OPS = [
    "pause_generation",
    "flush_cache",
    "begin_weight_update",
    "update_weights_from_tensor",
    "end_weight_update",
    "continue_generation",
]
FAULTS = ["before:status400", "before:status500", "before:drop", "after:drop", "after:status500", "before:die"]
LENGTHS = {"running-1": 6, "running-2": 30}
NEED_A_PLAN = {"NAME-1", "NAME-2", "NAME-3", "NAME-4", "RANK-3", "RANK-4", "VER-3"}
"""They speak of what a scenario pushes or asks on purpose."""


class Refits(OnTheFake):
    sut = ReferenceSut

    def prepare(self) -> None:
        know(self.bench, self.e, "fresh-0", *(f"fresh-{n}" for n in range(1, 40)), *LENGTHS, seeds=(0, 1, 2, 3))
        self.bench.note("engine", self.e, tp=self.e.spec.tp, gpus=[0])
        assert self.bench.sut is not None
        self.pending: list[Any] = []
        self.asked = 0

    @rule(label=st.sampled_from(list(LENGTHS)))
    def request(self, label: str) -> None:
        self.pending.append(self.bench.traffic(self.e, label, n=LENGTHS[label]))

    @rule(seconds=st.sampled_from([0.001, 0.05, 1.0]))
    def time_passes(self, seconds: float) -> None:
        self.e.sleep(seconds)

    @rule(op=st.sampled_from(OPS), nth=st.integers(1, 3), what=st.sampled_from(FAULTS))
    def fault(self, op: str, nth: int, what: str) -> None:
        self.bench.fault(f"e0:{op}#{nth}:{what}")

    @rule(seed=st.sampled_from([1, 2, 3]))
    def refit(self, seed: int) -> None:
        self.bench.refit(seed, deadline_s=20.0)
        self.asked += 1
        question(self.bench, [self.e], f"fresh-{self.asked}", n=3)
        restart_dead(self.bench, [self.e])

    @rule()
    def the_trainer_takes_the_memory(self) -> None:
        give_memory(self.bench)

    @rule()
    def the_engine_is_killed(self) -> None:
        self.e.kill()
        restart_dead(self.bench, [self.e])

    def teardown(self) -> None:
        if hasattr(self, "trace"):
            mine = (r for r in book().rules.values() if r.side == "refit" and r.id not in book().invariants)
            self.judge([r for r in mine if r.id not in NEED_A_PLAN])
        super().teardown()


TestRefits = Refits.TestCase
TestRefits.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
