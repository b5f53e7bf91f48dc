"""begin, end and the updates between them, by version. Statuses and sentences as a real server gave them on CPU."""

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import Raised
from tests.fakes.engine.control.driver import Driver

NONE = [v for v in ORDER if PROFILES[v].session == "none"]
REFUSE = [v for v in ORDER if PROFILES[v].session == "refuse"]
OK = {"success": True, "message": "Success"}


def no(message: str) -> dict[str, object]:
    return {"success": False, "message": message}


@pytest.mark.parametrize("version", NONE)
def test_without_sessions_the_routes_are_absent_and_updates_run(version: str) -> None:
    engine = Driver(version)
    for op in ("begin_weight_update", "end_weight_update"):
        reply = engine.call(op, {})
        assert (reply.status, reply.body) == (404, {"detail": "Not Found"})
    assert engine.update().body == OK
    assert engine.generate() == engine.expected(1)


@pytest.mark.parametrize("version", REFUSE)
def test_out_of_order_calls_are_refused_and_change_nothing(version: str) -> None:
    engine = Driver(version)
    before = engine.core.state_id()
    reply = engine.update()
    assert (reply.status, reply.body) == (
        400,
        no("update_weights_from_tensor must run between begin_weight_update() and end_weight_update()"),
    )
    closed = no("no weight-update session is open; call begin_weight_update() first")
    assert (engine.call("end_weight_update", {}).status, engine.call("end_weight_update", {}).body) == (400, closed)
    assert engine.call("begin_weight_update", {}).body == OK
    reply = engine.call("begin_weight_update", {})
    open_ = no("a weight-update session is already open; call end_weight_update() first")
    assert (reply.status, reply.body) == (400, open_)
    assert engine.core.state_id() == before
    assert engine.update(weight_version="v1").body == {
        "success": True,
        "message": "Success Weight version updated to v1.",
    }
    assert engine.call("end_weight_update", {}).body == OK
    assert engine.generate() == engine.expected(1)


@pytest.mark.parametrize("version", REFUSE)
def test_a_refused_update_opens_no_payload_and_meets_no_barrier(version: str) -> None:
    engine = Driver(version)
    engine.call("update_weights_from_tensor", {"serialized_named_tensors": [engine.payload(engine.weights(1))]})
    assert not [e for e in engine.effects if type(e).__name__ in ("OpenPayload", "Barrier")]


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("end_weight_update", "end_weight_update called without begin_weight_update"),
        ("update_weights_from_tensor", "update_weights_from_tensor requires an open begin_weight_update session"),
        (
            "update_weights_from_distributed",
            "update_weights_from_distributed requires an open begin_weight_update session",
        ),
    ],
)
def test_miles_dies_of_an_assertion(op: str, message: str) -> None:
    engine = Driver("miles")
    bodies = {
        "update_weights_from_tensor": {"serialized_named_tensors": [engine.payload({})]},
        "update_weights_from_distributed": {"names": [], "dtypes": [], "shapes": []},
    }
    assert engine.call(op, bodies.get(op, {})).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("AssertionError", message)


def test_miles_dies_of_a_second_begin() -> None:
    engine = Driver("miles")
    assert engine.call("begin_weight_update", {}).body == OK
    assert engine.call("begin_weight_update", {}).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error.message == "begin_weight_update called while a weight-update session is already open"


@pytest.mark.parametrize("version", REFUSE)
def test_selectors_are_independent_and_draft_loads_nothing(version: str) -> None:
    engine = Driver(version)
    before = engine.core.state_id()
    assert engine.call("begin_weight_update", {"selector": "draft"}).status == 200
    assert engine.update(selector="draft").body == OK
    assert engine.core.state_id() == before
    assert engine.update(selector="target").body == OK
    assert engine.core.state_id() != before
    assert engine.call("end_weight_update", {}).status == 200


@pytest.mark.parametrize("version", ORDER)
def test_a_short_list_dies_on_the_rank_that_finds_nothing_and_a_long_one_is_cut(version: str) -> None:
    engine = Driver(version, tp_size=2)
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    text = engine.payload(engine.weights(1))
    assert engine.call("update_weights_from_tensor", {"serialized_named_tensors": [text] * 3}).body == OK
    assert [fact["payload_index"] for fact in engine.named("load")] == [0, 1]
    assert engine.call("update_weights_from_tensor", {"serialized_named_tensors": [text]}).ending == "dropped"
    assert engine.died is not None
    assert (engine.died.rank, engine.died.error) == (1, Raised("IndexError", "list index out of range"))


def test_ranks_fed_from_two_updates_serve_neither() -> None:
    engine = Driver("0.5.20", tp_size=2)
    texts = [engine.payload(engine.weights(1)), engine.payload(engine.weights(2))]
    assert engine.call("update_weights_from_tensor", {"serialized_named_tensors": texts}).body == OK
    assert engine.generate() not in (engine.expected(0), engine.expected(1), engine.expected(2))


@pytest.mark.parametrize("version", ORDER)
def test_the_order_inside_an_update(version: str) -> None:
    engine = Driver(version)
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    engine.facts.clear()
    engine.update(weight_version="v1")
    owners = [(f.name, f.data.get("owner")) for f in engine.facts if f.name in ("load", "flush", "version")]
    flush, scheduler, tokenizer = ("flush", None), ("version", "scheduler"), ("version", "tokenizer")
    expected = {
        "0.5.12.post1": [flush, tokenizer],
        "0.5.17": [flush, tokenizer],
        "0.5.18": [flush, tokenizer],
        "0.5.22": [scheduler, flush, tokenizer],
        "0.5.23": [scheduler, flush, tokenizer],
    }
    assert owners == [("load", None), *expected.get(version, [flush, scheduler, tokenizer])]


@pytest.mark.parametrize("version", ORDER)
def test_a_refused_flush_after_an_update(version: str) -> None:
    engine = Driver(version)
    running = engine.start(
        "generate", {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 80, "ignore_eos": True}}
    )
    engine.advance(0.1)
    engine.call("pause_generation", {"mode": "in_place"})
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    reply = engine.update(weight_version="v1")
    if PROFILES[version].flush_failure == "die":
        assert reply.ending == "dropped"
        assert engine.died is not None
        assert engine.died.error == Raised("AssertionError", "Cache flush failed after updating weights")
        return
    assert reply.status == 400
    assert reply.body["message"].startswith("Weights were updated, but the cache was not flushed because requests")
    assert engine.call("model_info", method="GET").body["weight_version"] == "default"
    assert engine.core.scheduler.weight_version == "v1"
    engine.call("continue_generation", {})
    versions = engine.result(running).body["meta_info"]["weight_versions"]
    assert [span["version"] for span in versions] == ["default", "v1"]


def test_anyone_may_end_anyones_session_and_end_needs_no_load() -> None:
    engine = Driver("0.5.23")
    engine.call("begin_weight_update", {})
    assert engine.call("end_weight_update", {}, bearer="somebody else").body == OK


@pytest.mark.parametrize("version", REFUSE)
def test_a_session_without_pause_serves_half_new_weights_between_its_calls(version: str) -> None:
    engine = Driver(version)
    names = list(engine.weights(1))
    halves = [{n: engine.weights(1)[n] for n in names[:5]}, {n: engine.weights(1)[n] for n in names[5:]}]
    engine.call("begin_weight_update", {})
    assert engine.update(halves[0]).status == 200
    torn = engine.generate()
    assert engine.named("serve")[-1]["torn"]
    assert engine.named("serve")[-1]["session_open"]
    engine.update(halves[1])
    engine.call("end_weight_update", {})
    assert engine.generate() == engine.expected(1)
    assert torn not in (engine.expected(0), engine.expected(1))
    assert not engine.named("serve")[-1]["torn"]
