from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.outcome import Outcome
from fakes.trace import Header, TraceWriter
from harness.errors import UsageError
from harness.faults import Fault, faults_text, parse_fault, parse_faults
from harness.gate import FaultGate, digested, payload_digest
from harness.history import History
from harness.lanes.base import EngineSpec
from tests.harness.toys import OK, ToyEngine, ToyLink


class Stand:
    """One toy engine behind a gate with these faults."""

    def __init__(self, *faults: str, answer=lambda request: OK) -> None:
        self.trace = TraceWriter()
        self.trace.write(Header())
        self.link = ToyLink([0.0], answer)
        self.gate = FaultGate(self.trace, self.link.now, [parse_fault(text) for text in faults])
        self.engine = ToyEngine(self.gate, self.link, EngineSpec("0.5.23"), "e0")

    def call(self, op="flush_cache", **rest):
        return self.engine.call(op, origin=rest.pop("origin", "sut"), timeout_s=rest.pop("timeout_s", 10.0), **rest)

    @property
    def history(self) -> History:
        return History.from_records(self.trace.records)


def test_the_invoke_is_written_before_the_engine_acts_and_the_completion_after():
    def answer(request):
        seen.extend(type(record).__name__ for record in stand.trace.records)
        return OK

    seen: list[str] = []
    stand = Stand(answer=answer)
    stand.call(body={"x": 1}, query={"timeout": "2"})
    assert seen == ["Header", "Invoke"]
    (call,) = stand.history.calls()
    assert (call.request, call.outcome, call.end_t) == ({"?timeout": "2", "x": 1}, "ok", 0.125)


@pytest.mark.parametrize(
    ("fault", "ending", "status", "reached", "killed"),
    [
        ("before:status400", "reply", 400, 0, 0),
        ("after:status400", "reply", 400, 1, 0),
        ("before:status500", "reply", 500, 0, 0),
        ("after:status500", "reply", 500, 1, 0),
        ("before:success_false", "reply", 200, 0, 0),
        ("after:success_false", "reply", 200, 1, 0),
        ("before:drop", "dropped", None, 0, 0),
        ("after:drop", "dropped", None, 1, 0),
        ("before:hang", "timeout", None, 0, 0),
        ("after:hang", "timeout", None, 1, 0),
        ("before:die", "dropped", None, 0, 1),
        ("after:die", "dropped", None, 1, 1),
    ],
)
def test_a_fault_before_keeps_the_call_from_the_engine_and_one_after_keeps_the_answer_from_the_caller(
    fault, ending, status, reached, killed
):
    stand = Stand(f"e0:flush_cache#1:{fault}")
    outcome = stand.call()
    assert (outcome.ending, outcome.status, outcome.ok) == (ending, status, False)
    assert (len(stand.link.reached), stand.link.killed) == (reached, killed)
    (call,) = stand.history.calls()
    assert call.fault == f"e0:flush_cache#1:{fault}"
    assert call.delivered == bool(reached)
    assert call.tampered
    assert call.outcome == ("fail" if ending == "reply" else "indefinite")
    assert len(stand.history.facts("real_answer")) == reached


def test_a_hang_costs_the_caller_its_whole_patience():
    for when in ("before", "after"):
        stand = Stand(f"e0:flush_cache#1:{when}:hang")
        stand.call(timeout_s=10.0)
        assert stand.link.now() == 10.0


def test_a_delay_changes_when_and_not_what():
    for when, arrives in (("before", 2.5), ("after", 0.0)):
        stand = Stand(f"e0:flush_cache#1:{when}:delay=2.5")
        assert stand.call().ok
        assert stand.link.reached == [(arrives, "flush_cache")]
        assert stand.link.now() == 2.625
        (call,) = stand.history.calls()
        assert call.delivered
        assert not call.tampered


def test_a_call_that_is_delayed_past_its_callers_patience_still_reaches_the_engine():
    stand = Stand("e0:flush_cache#1:before:delay=30")
    assert stand.call(timeout_s=10.0).ending == "timeout"
    assert stand.link.reached == [(10.0, "flush_cache")]


def test_an_answer_that_is_delayed_past_its_callers_patience_is_a_timeout():
    stand = Stand("e0:flush_cache#1:after:delay=30")
    assert stand.call(timeout_s=10.0).ending == "timeout"
    assert stand.link.now() == 10.0


def test_only_the_nth_call_of_the_client_to_that_engine_and_operation_is_hit():
    stand = Stand("e0:flush_cache#2:before:drop")
    endings = [
        stand.call().ending,
        stand.call("health").ending,
        stand.call(origin="probe").ending,
        stand.call().ending,
        stand.call().ending,
    ]
    assert endings == ["reply", "reply", "reply", "dropped", "reply"]


def test_a_fault_leaves_other_operations_and_other_engines_alone():
    stand = Stand("e0:flush_cache#1:before:drop", "e1:health#1:before:drop")
    assert stand.call("health").ending == "reply"
    assert stand.call().ending == "dropped"


def test_a_fault_planted_later_counts_from_then():
    stand = Stand()
    stand.call()
    stand.gate.plant(parse_fault("e0:flush_cache#2:before:drop"))
    assert [stand.call().ending for _ in range(3)] == ["reply", "dropped", "reply"]
    assert [c.fault for c in stand.history.calls(where=lambda c: bool(c.fault))] == ["e0:flush_cache#3:before:drop"]


def test_a_background_call_is_recorded_when_it_ends_and_not_when_somebody_looks():
    stand = Stand()
    pending = stand.engine.start("generate")
    assert stand.history.calls()[0].outcome == "ok"
    assert pending.done
    assert pending.result(1.0).ok
    assert len(stand.trace.records) == 3


def test_a_background_call_with_a_fault_is_the_same_as_one_in_the_foreground():
    stand = Stand("e0:flush_cache#1:after:drop")
    pending = stand.engine.start("flush_cache", origin="sut")
    assert pending.result(1.0).ending == "dropped"
    assert len(stand.link.reached) == 1


def test_the_error_of_a_call_without_an_answer_begins_with_its_ending():
    stand = Stand(answer=lambda request: Outcome(ending="refused", error="nobody listens"))
    stand.call()
    (call,) = stand.history.calls()
    assert (call.outcome, call.status, call.error) == ("fail", None, "refused: nobody listens")


def test_long_texts_become_digests_and_short_ones_stay():
    payload = "A" * 5000
    kept = digested({"serialized_named_tensors": [payload], "load_format": "direct"}, lambda text: {"rank": 1})
    assert kept == {
        "serialized_named_tensors": [{"len": 5000, "sha256": payload_digest(payload), "rank": 1}],
        "load_format": "direct",
    }
    assert digested(b"\x80raw") == {"len": 4, "sha256": payload_digest(b"\x80raw")}


def test_an_answer_that_is_too_long_is_kept_as_its_digest():
    stand = Stand(answer=lambda request: Outcome(ending="reply", status=200, body=["x" * 70_000]))
    assert stand.call().body == ["x" * 70_000]
    assert stand.history.calls()[0].body["len"] == 70_004


faults = st.builds(
    Fault,
    st.sampled_from(["e0", "e1", "*"]),
    st.sampled_from(["flush_cache", "v1/models"]),
    st.integers(1, 99),
    st.sampled_from(["before", "after"]),
    st.sampled_from(["status400", "status500", "success_false", "drop", "hang", "die"]),
) | st.builds(Fault, st.just("e0"), st.just("x"), st.just(1), st.just("after"), st.just("delay"), st.integers(1, 500))


@given(st.lists(faults, max_size=4))
def test_a_fault_is_read_back_from_its_text(plan):
    assert list(parse_faults(faults_text(plan))) == plan


NO_FAULTS = """e0
e0:x#0:before:drop
e0:x#1:during:drop
e0:x#1:before:explode
e0:x#1:before:delay
e0:x#1:before:drop=2
e0:x#1:before:delay=1.2.3"""


@pytest.mark.parametrize("text", ["", *NO_FAULTS.splitlines()])
def test_a_text_that_is_no_fault_is_refused_in_one_line(text):
    with pytest.raises(UsageError) as told:
        parse_fault(text)
    assert "\n" not in str(told.value)


def test_something_can_be_done_when_a_call_of_the_client_is_on_its_way():
    stand = Stand()
    stand.call()
    stand.gate.when("e0", "flush_cache", 2, lambda: stand.engine.start("generate", {}))
    stand.call(origin="probe")
    stand.call()
    stand.call("pause_generation")
    assert "generate" not in [op for _, op in stand.link.reached]
    stand.call()
    stand.call()
    assert [op for _, op in stand.link.reached][-3:] == ["generate", "flush_cache", "flush_cache"]
    calls = [c.op for c in stand.history.calls()]
    assert calls[-3:] == ["flush_cache", "generate", "flush_cache"]
