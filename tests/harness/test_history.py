from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.trace import Complete, Header, Invoke, TraceWriter, Trainer
from harness.errors import MalformedHistory
from harness.history import History
from tests.harness.toys import fact, trace


def invoke(call, op="flush_cache", **rest):
    return Invoke(call=call, op=op, origin=rest.pop("origin", "sut"), engine=rest.pop("engine", "e0"), **rest)


def complete(call, outcome="ok", status=200, **rest):
    return Complete(call=call, outcome=outcome, status=status, engine=rest.pop("engine", "e0"), **rest)


def test_a_call_is_its_invoke_and_its_completion():
    history = History.from_records(
        trace(invoke(1, t=1.0, request={"a": 1}), complete(1, "fail", 400, t=2.0, body={"message": "busy"}))
    )
    (call,) = history.calls()
    assert (call.pos, call.end_pos, call.t, call.end_t) == (0, 1, 1.0, 2.0)
    assert (call.outcome, call.status, call.message, call.arg("a")) == ("fail", 400, "busy", 1)


def test_a_call_without_an_end_is_open_and_ends_after_everything():
    history = History.from_records(trace(invoke(1), fact("x"), fact("y")))
    (call,) = history.calls()
    assert (call.outcome, call.end_pos) == ("open", 3)
    assert call.message == "open"


def test_overlapping_calls_and_calls_one_after_the_other():
    a, b, c = History.from_records(
        trace(invoke(1), invoke(2), complete(1), complete(2), invoke(3), complete(3))
    ).calls()
    assert a.overlaps(b)
    assert b.overlaps(a)
    assert not a.overlaps(c)
    assert a.before(c)
    assert not a.before(b)


def test_calls_are_found_by_op_origin_engine_and_outcome():
    history = History.from_records(
        trace(
            invoke(1, "generate", origin="traffic"),
            invoke(2, "flush_cache", engine="e1"),
            complete(2, engine="e1"),
            invoke(3, "end_weight_update"),
            complete(3, "indefinite", None),
        )
    )
    assert [c.id for c in history.calls("flush_cache")] == [2]
    assert [c.id for c in history.calls(("generate", "end_weight_update"))] == [1, 3]
    assert [c.id for c in history.calls(origin="traffic")] == [1]
    assert [c.id for c in history.calls(engine="e1")] == [2]
    assert [c.id for c in history.calls(outcome="indefinite")] == [3]
    assert [c.id for c in history.calls(where=lambda c: c.id > 1)] == [2, 3]
    assert [c.ok for c in history.calls()] == [False, True, False]
    assert history.engines() == ["e0", "e1"]


def test_facts_and_trainer_records_are_found_by_name_source_and_data():
    history = History.from_records(
        trace(
            fact("flush", ok=True),
            fact("flush", ok=False, source="probe"),
            Trainer(rank=1, name="flush"),
            Trainer(rank=0, name="export", data={"consumer": 2}),
        )
    )
    assert len(history.facts("flush")) == 2
    assert [n.source for n in history.facts("flush", ok=False)] == ["probe"]
    assert [n.source for n in history.facts("flush", source="core")] == ["core"]
    assert [n.rank for n in history.trainer("flush")] == [1]
    assert len(history.trainer("export", consumer=2)) == 1
    assert history.trainer("export", rank=1) == []
    assert history.has("core:flush")
    assert not history.has("core:export")
    assert history.has("trainer:export")


def test_without_core_forgets_what_a_black_box_does_not_show_and_keeps_the_order():
    history = History.from_records(
        trace(fact("load"), invoke(1), fact("flush"), complete(1), fact("x", source="probe"))
    )
    black = history.without_core()
    assert [type(r).__name__ for r in black.records] == ["Invoke", "Complete", "Fact"]
    assert black.facts("load") == []
    assert black.calls()[0].pos == history.calls()[0].pos
    assert black.length == history.length


def test_refits_lie_between_the_harness_marks():
    history = History.from_records(
        trace(
            fact("refit", source="harness", phase="start", index=0, version="v1", seed=7, t=1.0),
            invoke(1),
            complete(1),
            fact("refit", source="harness", phase="end", index=0, ok=False, error_type="E", error="no", t=3.0),
            invoke(2),
            fact("refit", source="harness", phase="start", index=1, version="v2", seed=8, t=4.0),
        )
    )
    first, second = history.refits()
    assert (first.ok, first.version, first.seed, first.error_type, first.end_t) == (False, "v1", 7, "E", 3.0)
    assert second.ok is None
    assert [c.id for c in history.during(first).calls()] == [1]
    assert [c.id for c in history.between(first.end_pos, second.pos).calls()] == [2]


def test_a_canary_compares_tokens_and_then_logprobs():
    def answers(tokens, logprobs):
        about = {"source": "harness", "engine": "e0", "canary": 1, "label": "a"}
        expected = fact("expected", **about, seed=3, prompt=[9], tokens=[5, 6], logprobs=[-1.0, -2.0])
        answer = fact("answer", **about, tokens=tokens, logprobs=logprobs, outcome="ok")
        return History.from_records(trace(expected, answer)).canaries("e0")[0].matches()

    assert answers([5, 6], [-1.0, -2.0]) is True
    assert answers([5, 7], [-1.0, -2.0]) is False
    assert answers([5, 6], [-1.0, -2.1]) is False
    assert answers([5, 6], None) is True
    assert answers(None, None) is None


def test_two_writers_are_merged_on_their_shared_clock():
    gate = trace(invoke(1, t=1.0), complete(1, t=3.0), header=Header(meta={"epoch": 100.0, "scale": 1.0}))
    engine = trace(fact("flush", t=40.0), header=Header(meta={"epoch": 98.0, "scale": 0.1}))
    history = History.from_records(gate, engine)
    assert [type(r).__name__ for r in history.records] == ["Invoke", "Fact", "Complete"]


@given(st.lists(st.lists(st.floats(0, 100), max_size=6), min_size=1, max_size=4))
def test_merging_never_changes_the_order_within_a_writer(times):
    writers = [trace(*(fact("f", t=t, writer=i, n=n) for n, t in enumerate(ts))) for i, ts in enumerate(times)]
    history = History.from_records(*writers)
    for i, ts in enumerate(times):
        assert [n.data["n"] for n in history.facts("f", writer=i)] == list(range(len(ts)))


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([complete(1)], "ends but never began"),
        ([invoke(1), invoke(1)], "begins twice"),
        ([invoke(1), complete(1), complete(1)], "ends twice"),
    ],
)
def test_records_that_do_not_pair_are_refused(records, told):
    with pytest.raises(MalformedHistory, match=told):
        History.from_records(trace(*records))


def test_a_sequence_that_does_not_grow_is_refused():
    records = trace(fact("a"), fact("b"))
    with pytest.raises(MalformedHistory, match="seq"):
        History.from_records([records[0], records[2], records[1]])


def test_a_history_without_a_header_is_refused():
    writer = TraceWriter()
    writer.write(fact("a"))
    with pytest.raises(MalformedHistory, match="no header"):
        History.from_records(writer.records)


def test_a_header_whose_clock_is_no_number_is_refused():
    with pytest.raises(MalformedHistory, match=r"meta\.epoch"):
        History.from_records(trace(header=Header(meta={"epoch": "now"})))
