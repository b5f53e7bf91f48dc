"""Any order of control calls among running requests: no engine-side rule is ever broken by the fake, whatever met."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from conformance.engine.steps import bucket, know
from harness.versions import version_matches
from tests.conformance.machine import OnTheFake
from tests.conformance.running import book

MODES = st.sampled_from(["abort", "retract", "in_place"])
QUICK = settings(max_examples=12, stateful_step_count=15, deadline=None, phases=[Phase.generate])
"""Without shrinking: fifteen steps can be read as they are, and making them fewer takes minutes."""
LENGTHS = {"one": 2, "two": 8, "three": 30}
NEED_A_PLAN = {"SESS-56", "CACHE-57"}
"""They speak of an update that brought other weights than there were, which only a scenario knows."""


class Traffic(OnTheFake):
    """Requests come and go while the engine is paused, flushed, updated, published to and continued."""

    def prepare(self) -> None:
        know(self.bench, self.e, *LENGTHS)
        self.pending: list[Any] = []
        self.mode = ""

    @rule(label=st.sampled_from(list(LENGTHS)))
    def request(self, label: str) -> None:
        # A retract pause of a request that wants log-probabilities kills 0.5.12 on a CPU (fakes.engine.fatal_requests).
        wanted = self.version != "0.5.12.post1"
        self.pending.append(self.bench.traffic(self.e, label, n=LENGTHS[label], return_logprob=wanted))

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.3]))
    def time_passes(self, seconds: float) -> None:
        self.e.sleep(seconds)

    @rule(mode=MODES)
    def pause(self, mode: str) -> None:
        """Not abort after in_place: it waits for requests that are frozen, and no continue gets past it."""
        if (self.mode, mode) != ("in_place", "abort"):
            self.mode = mode
            self.e.call("pause_generation", {"mode": mode})

    @rule()
    def resume(self) -> None:
        self.mode = ""
        self.e.call("continue_generation", {})

    @rule(timeout=st.sampled_from([None, "0.1", "-1"]))
    def flush(self, timeout: str | None) -> None:
        self.e.call("flush_cache", query={} if timeout is None else {"timeout": timeout})

    @rule(seed=st.sampled_from([0, 1]), label=st.sampled_from([None, "v1", "v2"]), flush=st.booleans())
    def update(self, seed: int, label: str | None, flush: bool) -> None:
        fields = {} if label is None else {"weight_version": label}
        if self.bench.has_sessions:
            self.call_and_see("begin_weight_update", {})
        if self.e.alive:
            outcome = bucket(self.bench, self.e, seed, flush_cache=flush, **fields)
            if outcome.ending == "reply" and self.bench.has_sessions:
                self.call_and_see("end_weight_update", {})
        self.see()

    @rule(version=st.sampled_from(["p1", "p2"]), aborts=st.sampled_from([None, True, False]))
    def publish(self, version: str, aborts: bool | None) -> None:
        body = {"new_version": version} | ({} if aborts is None else {"abort_all_requests": aborts})
        self.call_and_see("update_weight_version", body)

    @rule(op=st.sampled_from(["model_info", "get_model_info"]))
    def look(self, op: str) -> None:
        self.e.call(op, method="GET")

    def call_and_see(self, op: str, body: Any) -> None:
        self.e.call(op, body, timeout_s=5.0)
        self.see()

    def see(self) -> None:
        """A dead engine is asked once more, and comes back."""
        if not self.e.alive:
            self.e.call("model_info", method="GET")
            self.pending.clear()
            self.mode = ""
            self.e.restart()

    def teardown(self) -> None:
        if hasattr(self, "trace"):
            self.e.call("continue_generation", {})
            for request in self.pending:
                request.result(30.0)
            self.judge(self.promises())
        super().teardown()

    def promises(self) -> list[Any]:
        mine = (r for r in book().rules.values() if r.side == "engine" and version_matches(self.version, r.versions))
        return [r for r in mine if r.id not in NEED_A_PLAN]


@pytest.mark.parametrize("version", ["0.5.23", "0.5.21", "0.5.20", "0.5.12.post1"])
def test_no_order_of_calls_breaks_a_rule(version: str) -> None:
    machine = type(f"Traffic{version}", (Traffic,), {"version": version})
    run_state_machine_as_test(machine, settings=QUICK)
