"""What the schedulers do at the edges: stray answers of the front, probes of a busy engine, state ids, wholeness."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fakes.engine.protocol import Done, Raised
from tests.fakes.engine.control.driver import Driver, generate_body

NORM = "model.norm.weight"
SPEC = {"names": [NORM], "dtypes": ["bfloat16"], "shapes": [[64]], "group_name": "g"}
GROUP = {"master_address": "a", "master_port": 1, "rank_offset": 1, "world_size": 3, "group_name": "g"}


def session(version: str = "0.5.23", **config: object) -> Driver:
    engine = Driver(version, **config)
    engine.call("begin_weight_update", {})
    return engine


def grouped(**config: object) -> Driver:
    engine = session(**config)
    engine.call("init_weights_update_group", {**GROUP, "backend": "gloo"})
    return engine


def test_answers_of_io_that_nobody_asked_for_are_dropped() -> None:
    engine = session()
    assert engine.core.step(Done(99), 0.0) == []
    engine.hang.add("OpenPayload")
    update = engine.start("update_weights_from_tensor", {"serialized_named_tensors": [engine.payload({})]})
    (asked,) = engine.hung
    engine.core.step(Done(asked.id + 1, []), 0.0)
    engine.core.step(Done(asked.id + 1, error=Raised("X", "x")), 0.0)
    engine.advance(1.0)
    assert not engine.done(update)
    engine.hang.clear()
    engine.finish_reads()
    assert engine.result(update).status == 200
    assert engine.core.step(Done(asked.id, []), engine.now) == []


def test_while_one_rank_waits_the_others_wait_too_and_nothing_is_due() -> None:
    engine = session(tp_size=2)
    engine.hang.add("OpenPayload")
    texts = [engine.payload({}, name=str(rank)) for rank in range(2)]
    update = engine.start("update_weights_from_tensor", {"serialized_named_tensors": texts})
    generation = engine.start("generate", generate_body(1))
    first, second = engine.hung
    assert (first.rank, second.rank) == (0, 1)
    engine._absorb(engine.core.step(Done(second.id, []), engine.now))
    assert engine.core.next_deadline() is None
    assert not engine.done(update)
    engine._absorb(engine.core.step(Done(first.id, []), engine.now))
    assert engine.done(update)
    assert engine.result(generation).status == 200


def test_the_state_id_is_that_of_the_ranks() -> None:
    one, two = Driver(), Driver(tp_size=2)
    assert one.core.state_id() == one.core.scheduler.ranks[0].state_id()
    parts = [rank.state_id() for rank in two.core.scheduler.ranks]
    assert two.core.state_id() == hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
    before = two.core.state_id()
    assert two.core.state_id() is before
    two.core.scheduler.ranks[1].fill(NORM, 2.0)
    assert two.core.state_id() != before


def test_a_probe_of_a_busy_engine_is_answered_with_its_next_step() -> None:
    """managers/scheduler.py@0.5.23: a health request is not run when anything else is."""
    engine = Driver("0.5.23")
    engine.call("slow_down", {"forward_sleep_time": 0.5})
    engine.start("generate", generate_body(200))
    engine.advance(0.1)
    reply = engine.call("health_generate", method="GET")
    assert (reply.status, reply.elapsed_s) == (200, pytest.approx(1.0))
    assert not [fact for fact in engine.named("request") if "HEALTH" in fact["rid"]]
    assert engine.call("slow_down", {"forward_sleep_time": None}).status == 200
    engine.advance(0.6)
    seen = len(engine.named("serve"))
    engine.advance(0.1)
    assert len(engine.named("serve")) - seen >= 24, "null is no sleep"


@pytest.mark.parametrize(
    ("prompt", "kills"), [([0], False), ([511], False), ([512], True), ([5, 512], True), ([-1], True)]
)
def test_which_token_ids_kill(prompt: list[int], kills: bool) -> None:
    engine = Driver("0.5.23")
    reply = engine.call("generate", generate_body(1, prompt))
    assert reply.ending == ("dropped" if kills else "reply")
    if engine.died is not None:
        assert engine.died.error == Raised("IndexError", "index out of range in self")
        assert engine.core.scheduler.batch.waiting[0].prompt == [t if t in range(512) else 512 for t in prompt]


def test_a_bad_token_that_waits_behind_a_pause_kills_when_it_is_run() -> None:
    engine = Driver("0.5.23")
    running = engine.start("generate", generate_body(60))
    engine.advance(0.02)
    bad = engine.start("generate", generate_body(1, [3, 700]))
    engine.call("pause_generation", {"mode": "retract"})
    engine.advance(1.0)
    assert engine.died is None
    engine.call("continue_generation", {})
    assert engine.result(bad).ending == "dropped"
    assert engine.result(running).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("IndexError", "index out of range in self")


def test_messages_that_come_during_a_step_are_read_when_it_ends_and_before_its_batch_is_cleaned_up() -> None:
    """managers/scheduler.py:2028@0.5.23: a flush that comes in the last step of a request still finds it."""
    engine = Driver("0.5.23")
    engine.start("generate", generate_body(1))
    calls = [engine.start("flush_cache") for _ in range(2)]
    engine.advance(0.007)
    assert engine.result(calls[0]).status == 400
    assert engine.named("flush")[0]["reason"] == "#queue-req: 0, #running-req: 1"
    assert engine.call("flush_cache").status == 200


def test_an_abort_of_one_running_request_leaves_the_other_alone() -> None:
    engine = Driver("0.5.23")
    one, two = (engine.start("generate", generate_body(40, [n], rid=f"r{n}")) for n in (1, 2))
    engine.advance(0.03)
    engine.call("abort_request", {"rid": "r1"})
    assert engine.result(one).body["meta_info"]["finish_reason"]["type"] == "abort"
    assert engine.result(two).body["meta_info"]["finish_reason"]["type"] == "length"


@pytest.mark.parametrize(("running", "spared"), [(True, False), (False, True)])
def test_an_in_place_pause_of_an_idle_engine_wakes_no_watchdog(running: bool, spared: bool) -> None:
    engine = Driver("0.5.23", watchdog_timeout=2.0)
    if running:
        engine.start("generate", generate_body(40))
        engine.advance(0.02)
    engine.call("pause_generation", {"mode": "in_place"})
    engine.start("generate", generate_body(40))
    engine.advance(200.0)
    assert (engine.died is None) == spared


def test_going_on_ends_the_watch() -> None:
    engine = Driver("0.5.23", watchdog_timeout=2.0)
    engine.call("slow_down", {"forward_sleep_time": 0.2})
    call = engine.start("generate", generate_body(60))
    engine.advance(0.5)
    engine.call("pause_generation", {"mode": "in_place"})
    engine.advance(2.9)
    engine.call("continue_generation", {})
    engine.advance(5.0)
    assert engine.died is None
    assert engine.result(call).status == 200


def test_a_failed_load_is_torn_until_every_name_was_sent_again() -> None:
    """Nothing is rolled back (weight_updater.py:318@0.5.23): what is served until then is a mixture."""
    engine = grouped()
    weights = engine.weights(1)
    engine.broadcast = [(NORM, weights[NORM][:3])]
    assert engine.call("update_weights_from_distributed", SPEC).status == 400
    engine.call("end_weight_update", {})

    def torn() -> bool:
        engine.generate(1)
        return bool(engine.named("serve")[-1]["torn"])

    assert torn()
    names = list(weights)
    for some in (names[:5], names[3:-1]):
        engine.call("begin_weight_update", {})
        engine.update({name: weights[name] for name in some})
        engine.call("end_weight_update", {})
        assert torn()
    engine.call("begin_weight_update", {})
    engine.update({names[-1]: weights[names[-1]]})
    assert torn(), "inside a session after a load"
    engine.call("end_weight_update", {})
    assert not torn()


def test_a_session_that_loaded_nothing_is_not_torn_and_device_names_count_too() -> None:
    engine = Driver("0.5.23", device="cuda", enable_memory_saver=True)
    engine.call("release_memory_occupation", {"tags": ["weights"]})
    engine.call("resume_memory_occupation", {"tags": ["weights"]})
    engine.generate(1)
    assert engine.named("serve")[-1]["torn"]
    engine.call("begin_weight_update", {})
    device = {name: param.copy() for name, param in engine.core.scheduler.ranks[0].params.items()}
    engine.update(device, load_format="direct")
    engine.call("end_weight_update", {})
    engine.generate(1)
    assert not engine.named("serve")[-1]["torn"]
    engine.call("begin_weight_update", {})
    engine.generate(1)
    assert engine.named("serve")[-1]["session_open"]
    assert not engine.named("serve")[-1]["torn"]


@pytest.mark.parametrize(("rank", "status"), [(0, 400), (1, 200)])
def test_only_rank_0_tells_that_a_broadcast_did_not_fit(rank: int, status: int) -> None:
    engine = grouped(tp_size=2)
    engine.hang.add("Recv")
    call = engine.start("update_weights_from_distributed", SPEC)
    weights = engine.weights(1)
    for effect in engine.hung:
        value = weights[NORM][:3] if effect.rank == rank else weights[NORM]
        engine._absorb(engine.core.step(Done(effect.id, [(NORM, value)]), engine.now))
    assert engine.result(call).status == status
    loads = [fact["rank"] for fact in engine.named("load")]
    assert loads == [1 - rank]
    held = [np.asarray(r.params[NORM]) for r in engine.core.scheduler.ranks]
    assert (held[1 - rank] == weights[NORM]).all()


@pytest.mark.parametrize(("rank", "status"), [(0, 400), (1, 200)])
def test_only_rank_0_tells_that_a_receive_failed(rank: int, status: int) -> None:
    engine = grouped(tp_size=2)
    engine.hang.add("Recv")
    call = engine.start("update_weights_from_distributed", SPEC)
    value = [(NORM, engine.weights(1)[NORM])]
    for effect in engine.hung:
        error = Raised("RuntimeError", f"rank {rank} lost its peer") if effect.rank == rank else None
        engine._absorb(engine.core.step(Done(effect.id, None if error else value, error), engine.now))
    reply = engine.result(call)
    assert reply.status == status
    assert ("lost its peer" in reply.body["message"]) == (rank == 0)


def test_a_receive_that_aborts_its_process_is_a_death() -> None:
    engine = grouped(tp_size=2)
    engine.broadcast = Raised("SIGABRT", "watchdog")
    assert engine.call("update_weights_from_distributed", SPEC).ending == "dropped"
    assert engine.died is not None
    assert (engine.died.error, engine.died.rank) == (Raised("SIGABRT", "watchdog"), 0)


@pytest.mark.parametrize("op", ["update_weights_from_tensor", "update_weights_from_distributed", "begin_weight_update"])
def test_a_selector_that_only_a_caller_in_process_can_send_kills(op: str) -> None:
    engine = grouped()
    if op == "begin_weight_update":
        engine.call("end_weight_update", {})
    engine.broadcast = [(NORM, engine.weights(1)[NORM])]
    body = {"selector": "bogus"}
    if op == "update_weights_from_tensor":
        body |= {"serialized_named_tensors": [b"\x80\x04x"]}  # type: ignore[dict-item]
        engine._payloads[b"\x80\x04x"] = []
    if op == "update_weights_from_distributed":
        body |= SPEC  # type: ignore[arg-type]
    engine.call(op, body, via="engine")
    assert engine.died is not None
    assert engine.died.error == Raised("ValueError", "invalid selector 'bogus'; expected 'target', 'draft', or 'all'")


def test_a_broadcast_into_released_weights_kills() -> None:
    engine = grouped(device="cuda", enable_memory_saver=True)
    engine.call("release_memory_occupation", {"tags": ["weights"]})
    engine.broadcast = [(NORM, engine.weights(1)[NORM])]
    assert engine.call("update_weights_from_distributed", SPEC).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error.type == "AcceleratorError"


def test_a_draft_model_that_is_not_there_is_checked_without_a_word() -> None:
    engine = Driver("0.5.23")
    reply = engine.call("weights_checker", {"action": "checksum", "selector": "draft"})
    assert reply.body == {"success": True, "message": "Success."}
    assert engine.call("weights_checker", {"action": "bogus", "selector": "draft"}).status == 200
    assert "ranks" in engine.call("weights_checker", {"selector": "target"}).body


def test_the_checker_of_a_gpu_compares() -> None:
    for version, words in (("0.5.12.post1", "mean_abs_err"), ("0.5.23", "num_exceed")):
        engine = Driver(version, device="cuda")
        engine.call("weights_checker", {"action": "snapshot"})
        assert engine.call("weights_checker", {"action": "compare"}).status == 200
        engine.call("weights_checker", {"action": "snapshot"})
        engine.call("weights_checker", {"action": "reset_tensors"})
        text = engine.call("weights_checker", {"action": "compare"}).body["message"]
        assert words in text
        assert ("num_exceed" in text) == (version == "0.5.23")
