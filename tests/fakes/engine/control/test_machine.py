"""Any order of control calls, against a model of one page: session, pause, tags, version, life."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakes.engine.profiles import ORDER, PROFILES
from tests.fakes.engine.control.driver import Driver, generate_body

TAGS = st.lists(st.sampled_from(["weights", "kv_cache", "cuda_graph", "other"]), max_size=3, unique=True)
SEEDS = st.integers(0, 3)


class Engine(RuleBasedStateMachine):
    """What a client may do while no request runs; one request may be queued by a pause."""

    version = "0.5.23"

    @initialize()
    def launch(self) -> None:
        self.profile = PROFILES[self.version]
        self.engine = Driver(self.version)
        self.open = self.paused = False
        self.released: set[str] = set()
        self.label = "default"
        self.held: int | None = 0
        self.waiting: int | None = None
        self.aborted = False  # the generation that waits

    def dies(self, op: str, body: Any) -> None:
        reply = self.engine.call(op, body)
        assert reply.ending == "dropped"
        assert self.engine.call("model_info", method="GET").ending == "dropped"
        self.launch()

    @rule()
    def begin(self) -> None:
        kind = self.profile.session
        if kind == "assert" and self.open:
            self.dies("begin_weight_update", {})
            return
        reply = self.engine.call("begin_weight_update", {})
        assert reply.status == (404 if kind == "none" else 400 if self.open else 200)
        self.open = kind != "none"

    @rule()
    def end(self) -> None:
        kind = self.profile.session
        if kind == "assert" and not self.open:
            self.dies("end_weight_update", {})
            return
        reply = self.engine.call("end_weight_update", {})
        assert reply.status == (404 if kind == "none" else 200 if self.open else 400)
        self.open = False

    @rule(seed=SEEDS, label=st.sampled_from([None, "v1", "v2"]), flush=st.booleans())
    def update(self, seed: int, label: str | None, flush: bool) -> None:
        kind = self.profile.session
        if kind == "assert" and not self.open:
            self.dies("update_weights_from_tensor", {"serialized_named_tensors": [self.engine.payload({})]})
            return
        reply = self.engine.update(seed=seed, weight_version=label, flush_cache=flush)
        allowed = kind == "none" or self.open
        assert reply.status == (200 if allowed else 400)
        if allowed:
            self.label = label or self.label
            self.held = seed if flush or self.held == seed else None

    @rule(mode=st.sampled_from(["abort", "retract", "in_place"]))
    def pause(self, mode: str) -> None:
        assert self.engine.call("pause_generation", {"mode": mode}).status == 200
        self.paused = True
        self.aborted |= mode == "abort" and self.waiting is not None

    @rule()
    def go_on(self) -> None:
        assert self.engine.call("continue_generation", {}).status == 200
        self.paused = False
        if self.waiting is not None:
            remembered = self.profile.abort_remembered and self.aborted
            assert self.engine.result(self.waiting).status == (499 if remembered else 200)
            self.waiting, self.aborted = None, False

    @rule()
    def flush(self) -> None:
        assert self.engine.call("flush_cache").status == 200

    @precondition(lambda self: not self.paused)
    @rule()
    def generate(self) -> None:
        tokens = self.engine.generate(3)
        if self.held is not None:
            assert tokens == EXPECTED.setdefault(self.held, Driver("0.5.23", seed=self.held).generate(3))

    @precondition(lambda self: self.paused and self.waiting is None)
    @rule()
    def generate_while_paused(self) -> None:
        self.waiting = self.engine.start("generate", generate_body(2, [1, 2]))
        self.engine.advance(30.0)
        assert not self.engine.done(self.waiting)

    @rule(tags=TAGS)
    def release(self, tags: list[str]) -> None:
        assert self.engine.call("release_memory_occupation", {"tags": tags} if tags else {}).status == 200
        self.released |= set(tags or ["kv_cache", "weights", "cuda_graph"])

    @rule(tags=TAGS)
    def resume(self, tags: list[str]) -> None:
        body = {"tags": tags} if tags else {}
        wanted = set(tags or ["kv_cache", "weights", "cuda_graph"])
        if not wanted <= self.released:
            self.dies("resume_memory_occupation", body)
            return
        assert self.engine.call("resume_memory_occupation", body).status == 200
        self.released -= wanted

    @rule(label=st.sampled_from(["v1", "v3"]))
    def relabel(self, label: str) -> None:
        assert self.engine.call("update_weight_version", {"new_version": label}).status == 200
        self.label = label

    @rule()
    def ready(self) -> None:
        status = self.engine.call("ready", method="GET").status
        assert status == (404 if not self.profile.ready_route else 503 if self.paused else 200)

    @invariant()
    def says_what_it_is(self) -> None:
        assert self.engine.call("model_info", method="GET").body["weight_version"] == self.label
        assert self.engine.core.released_tags == sorted(self.released)
        assert (self.engine.core.scheduler.updater.session is not None) == self.open


EXPECTED: dict[int, list[int]] = {}


@pytest.mark.parametrize("version", ORDER)
def test_any_order_of_calls(version: str) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    machine = type(f"Engine_{version}", (Engine,), {"version": version})
    run_state_machine_as_test(machine, settings=settings(max_examples=12, stateful_step_count=25))  # type: ignore[arg-type]  # a subclass made here
