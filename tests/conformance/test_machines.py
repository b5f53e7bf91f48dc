"""Any order of control calls on the fake: what the judges know of the engine's state agrees with what it answers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from conformance.engine.steps import ask, bucket, know
from conformance.rules.sess import RULES as SESS
from conformance.view import state_at
from tests.conformance.machine import OnTheFake
from tests.conformance.running import book

SESSION_RULES = [r for r in SESS if r.id in ("SESS-51", "SESS-52", "SESS-53", "SESS-57")]
MEMORY_RULES = [book().rules[name] for name in ("MEM-51", "MEM-52", "MEM-53", "MEM-55", "MEM-56", "ERR-51")]
TAGS = st.sets(st.sampled_from(["weights", "kv_cache", "cuda_graph", "bogus"]), max_size=3).map(sorted)


class Sessions(OnTheFake):
    def prepare(self) -> None:
        know(self.bench, self.e, "machine")

    @rule()
    def begin(self) -> None:
        self.e.call("begin_weight_update", {})

    @rule()
    def end(self) -> None:
        self.e.call("end_weight_update", {})

    @rule(seed=st.sampled_from([0, 1]), version=st.sampled_from([None, "v1", "v2"]))
    def update(self, seed: int, version: str | None) -> None:
        bucket(self.bench, self.e, seed, **({} if version is None else {"weight_version": version}))

    @rule()
    def bad_update(self) -> None:
        self.e.call("update_weights_from_tensor", {"serialized_named_tensors": ["***"]})

    @rule(mode=st.sampled_from(["abort", "retract", "in_place"]))
    def pause_and_continue(self, mode: str) -> None:
        self.e.call("pause_generation", {"mode": mode})
        self.e.call("continue_generation", {})

    @rule()
    def generate(self) -> None:
        ask(self.bench, self.e, "machine")

    @invariant()
    def rules_hold(self) -> None:
        self.judge(SESSION_RULES)

    @invariant()
    def the_session_is_known(self) -> None:
        if hasattr(self, "trace"):
            told = list(self.history().facts("session", source="core"))
            expected = told[-1].get("state") if told else "closed"
            assert state_at(self.history(), "e0", self.e.incarnation, len(self.trace.records)).session == expected


class MemoryTags(OnTheFake):
    @rule(tags=TAGS)
    def release(self, tags: list[str]) -> None:
        self.e.call("release_memory_occupation", {"tags": tags} if tags else {})

    @rule(tags=TAGS)
    def resume(self, tags: list[str]) -> None:
        self.e.call("resume_memory_occupation", {"tags": tags} if tags else {})
        if not self.e.alive:
            self.e.call("model_info", method="GET")
            self.e.restart()

    @rule()
    def session(self) -> None:
        self.e.call("begin_weight_update", {})
        self.e.call("end_weight_update", {})

    @invariant()
    def rules_hold(self) -> None:
        self.judge(MEMORY_RULES)

    @invariant()
    def the_tags_are_known(self) -> None:
        if hasattr(self, "trace"):
            history = self.history()
            told = [f for f in history.facts("memory", source="core") if f.incarnation == self.e.incarnation]
            expected = frozenset(told[-1].get("tags")) if told else frozenset()
            assert state_at(history, "e0", self.e.incarnation, len(self.trace.records)).released == expected


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
TestMemoryTags = MemoryTags.TestCase
TestMemoryTags.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
