"""Pause, the reader/writer lock and flush: who waits for whom, and what becomes of requests."""

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from tests.fakes.engine.control.driver import Driver, generate_body

PAUSED = {"message": "Generation paused successfully.", "status": "ok"}
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)


def busy(version: str, n: int = 80) -> tuple[Driver, int]:
    engine = Driver(version)
    call = engine.start("generate", generate_body(n))
    engine.advance(0.1)
    return engine, call


@pytest.mark.parametrize("version", ORDER)
def test_abort_returns_when_nothing_runs_in_steps_of_a_second(version: str) -> None:
    engine, call = busy(version)
    reply = engine.call("pause_generation", {"mode": "abort"})
    assert (reply.status, reply.body, reply.elapsed_s) == (200, PAUSED, pytest.approx(1.0))
    generated = engine.result(call)
    assert generated.status == 200
    assert generated.body["meta_info"]["finish_reason"] == {
        "type": "abort",
        "message": "Aborted",
        "status_code": None,
        "err_type": None,
    }
    assert 0 < len(generated.body["output_ids"]) < 80
    assert engine.call("flush_cache").body == FLUSHED


@pytest.mark.parametrize("version", ORDER)
def test_pausing_an_idle_engine_is_immediate_and_repeatable(version: str) -> None:
    engine = Driver(version)
    for mode in ("abort", "retract", "in_place", "in_place"):
        reply = engine.call("pause_generation", {"mode": mode})
        assert (reply.body, reply.elapsed_s) == (PAUSED, 0.0)
    reply = engine.call("continue_generation", {})
    assert reply.body == {"message": "Generation continued successfully.", "status": "ok"}
    assert engine.generate() == engine.expected(0)


@pytest.mark.parametrize("mode", ["retract", "in_place"])
@pytest.mark.parametrize("version", ORDER)
def test_a_paused_request_goes_on_with_the_same_tokens(version: str, mode: str) -> None:
    engine, call = busy(version)
    engine.call("pause_generation", {"mode": mode})
    engine.advance(30)
    assert not engine.done(call)
    engine.call("continue_generation", {})
    body = engine.result(call).body
    assert body["output_ids"] == Driver(version).generate(80)
    assert body["meta_info"]["num_retractions"] == (mode == "retract")


@pytest.mark.parametrize("version", ORDER)
def test_new_requests_wait_for_continue_and_are_never_refused(version: str) -> None:
    engine = Driver(version)
    engine.call("pause_generation", {})
    call = engine.start("generate", generate_body())
    engine.advance(100)
    assert not engine.done(call)
    engine.call("continue_generation", {})
    assert engine.result(call).status == 200


@pytest.mark.parametrize("version", ORDER)
def test_flush_by_state(version: str) -> None:
    """idle 200; running 400; retract with a queue 400 up to 0.5.20, 200 later; in place with a running request 400."""
    engine, _ = busy(version)
    assert (engine.call("flush_cache").status, engine.call("flush_cache").body) == (400, "Flush cache failed.\n")
    engine.call("pause_generation", {"mode": "retract"})
    relaxed = PROFILES[version].idle_ignores_queue_when_paused
    assert engine.call("flush_cache").status == (200 if relaxed else 400)
    reply = engine.call("flush_cache", query={"timeout": "0.5"})
    assert (reply.status, reply.body, reply.elapsed_s) == (400, "Timed out waiting for idle state.", pytest.approx(0.5))
    other, _ = busy(version)
    other.call("pause_generation", {"mode": "in_place"})
    assert other.call("flush_cache").status == 400


def test_two_deferred_flushes_wait_in_one_line() -> None:
    """The tokenizer manager keeps one flush in flight, so the scheduler never sees the second while the first waits."""
    engine, call = busy("0.5.23", 60)
    first = engine.start("flush_cache", query={"timeout": "5"})
    second = engine.start("flush_cache", query={"timeout": "5"})
    assert engine.result(first).body == FLUSHED
    assert engine.result(second).body == FLUSHED
    assert engine.done(call)


@pytest.mark.parametrize("version", ORDER)
def test_an_unpaused_update_waits_for_running_requests_and_holds_back_new_ones(version: str) -> None:
    engine, running = busy(version)
    op = "update_weights_from_tensor" if PROFILES[version].session == "none" else "begin_weight_update"
    body = {"serialized_named_tensors": [engine.payload(engine.weights(1))]} if op.startswith("up") else {}
    update = engine.start(op, body)
    late = engine.start("generate", generate_body())
    engine.advance(0.1)
    assert not engine.done(update)
    assert not engine.done(late)
    assert len(engine.result(running).body["output_ids"]) == 80
    assert engine.result(update).elapsed_s == pytest.approx(engine.result(running).elapsed_s - 0.1, abs=0.01)
    expected = Driver(version, seed=1 if op.startswith("up") else 0).generate()
    assert engine.result(late).body["output_ids"] == expected


@pytest.mark.parametrize("version", ORDER)
def test_abort_all_requests_makes_an_unpaused_update_quick(version: str) -> None:
    engine = Driver(version)
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    running = engine.start("generate", generate_body(80))
    engine.advance(0.1)
    reply = engine.update(abort_all_requests=True)
    assert reply.status == 200
    assert reply.elapsed_s < 0.05
    assert engine.result(running).body["meta_info"]["finish_reason"]["type"] == "abort"


def test_a_pause_that_comes_while_an_update_waits_leaves_both_waiting_until_continue() -> None:
    engine, running = busy("0.5.23")
    begin = engine.start("begin_weight_update", {})
    engine.call("pause_generation", {"mode": "in_place"})
    engine.advance(60)
    assert not engine.done(begin)
    engine.call("continue_generation", {})
    assert engine.result(running).status == 200
    assert engine.result(begin).status == 200


def test_abort_after_in_place_with_a_running_request_never_returns_and_blocks_continue() -> None:
    engine, _ = busy("0.5.23")
    engine.call("pause_generation", {"mode": "in_place"})
    pause = engine.start("pause_generation", {"mode": "abort"})
    go_on = engine.start("continue_generation", {})
    engine.advance(100)
    assert not engine.done(pause)
    assert not engine.done(go_on)


def test_a_paused_update_holds_the_condition_so_continue_comes_after_it() -> None:
    engine = Driver("0.5.23")
    engine.call("pause_generation", {})
    engine.call("begin_weight_update", {})
    engine.hang.add("OpenPayload")
    update = engine.start("update_weights_from_tensor", {"serialized_named_tensors": [engine.payload({})]})
    go_on = engine.start("continue_generation", {})
    engine.advance(10)
    assert not engine.done(update)
    assert not engine.done(go_on)


def test_an_in_place_pause_over_a_live_batch_wakes_the_watchdog() -> None:
    engine, call = busy("0.5.23")
    engine.call("pause_generation", {"mode": "in_place"})
    assert engine.result(call, 1000).ending == "dropped"
    assert 300 <= engine.died_at <= 450 + 5 + 65 + 1, (
        "the watchdog sleeps, then the diagnostics wait for a live process"
    )
    idle = Driver("0.5.23")
    idle.call("pause_generation", {"mode": "in_place"})
    idle.advance(1000)
    assert idle.died is None


def test_a_pause_that_ends_or_retracts_lets_the_watchdog_sleep() -> None:
    for ends in (("continue_generation", {}), ("pause_generation", {"mode": "retract"})):
        engine, _ = busy("0.5.23")
        engine.call("pause_generation", {"mode": "in_place"})
        engine.advance(200)
        engine.call(*ends)
        engine.advance(1000)
        assert engine.died is None
        engine.call("continue_generation", {})
        again = engine.start("generate", generate_body(80))
        engine.advance(0.1)
        engine.call("pause_generation", {"mode": "in_place"})
        paused = engine.now
        assert engine.result(again, 1000).ending == "dropped"
        assert engine.died_at - paused > 300, "counted from the last pause"


RENDEZVOUS = {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 2, "backend": "gloo"}


def test_a_rendezvous_that_nobody_joins_kills_if_a_batch_was_current() -> None:
    engine, call = busy("0.5.23")
    engine.hang.add("Join")
    joining = engine.start("init_weights_update_group", RENDEZVOUS)
    begun = engine.now
    assert engine.result(joining, 1000).ending == "dropped"
    assert engine.result(call).ending == "dropped"
    assert engine.died is not None
    assert (engine.died.error.type, engine.died_at - begun) == ("Watchdog", pytest.approx(450 + 5 + 65, abs=6))
    idle = Driver("0.5.23")
    idle.hang.add("Join")
    waits = idle.start("init_weights_update_group", RENDEZVOUS)
    idle.advance(2000)
    assert idle.died is None
    assert not idle.done(waits)


def test_a_rendezvous_that_is_joined_in_time_is_forgotten() -> None:
    engine, call = busy("0.5.23")
    engine.hang.add("Join")
    joining = engine.start("init_weights_update_group", RENDEZVOUS)
    engine.advance(400)
    engine.hang.clear()
    engine.finish_reads()
    assert engine.result(joining).status == 200
    assert engine.result(call).status == 200
    engine.advance(1000)
    assert engine.died is None


@pytest.mark.parametrize("version", ORDER)
def test_in_place_without_a_flush_keeps_old_kv_and_says_so(version: str) -> None:
    engine, call = busy(version, 60)
    engine.call("pause_generation", {"mode": "in_place"})
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    assert engine.update(flush_cache=False).status == 200
    if PROFILES[version].session != "none":
        engine.call("end_weight_update", {})
    engine.call("continue_generation", {})
    tokens = engine.result(call).body["output_ids"]
    assert tokens not in (Driver(version).generate(60), Driver(version, seed=1).generate(60))
    last = engine.named("serve")[-1]
    assert len(last["kv"]) == 2
    assert last["weights"] == engine.core.state_id() != last["kv"][0]


@pytest.mark.parametrize("version", ORDER)
def test_a_stale_prefix_gives_other_tokens_until_a_flush(version: str) -> None:
    engine = Driver(version)
    engine.generate()
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    engine.update(flush_cache=False)
    if PROFILES[version].session != "none":
        engine.call("end_weight_update", {})
    reply = engine.call("generate", generate_body()).body
    assert reply["meta_info"]["cached_tokens"] == 4
    assert reply["output_ids"] != engine.expected(1)
    engine.call("flush_cache")
    assert engine.generate() == engine.expected(1)


@pytest.mark.parametrize("version", ORDER)
def test_a_stale_batch_after_the_last_response(version: str) -> None:
    """sgl-project/sglang#14062, also seen on a real 0.5.23: the client has every answer, the engine is not idle yet."""
    engine = Driver(version, stale_batch_steps=3)
    engine.generate()
    assert engine.call("flush_cache").status == 400
    engine.advance(0.02)
    assert engine.call("flush_cache").status == 200
    if PROFILES[version].session == "none":
        call = engine.start("generate", generate_body(20))
        engine.advance(0.01)
        reply = engine.update()
        assert reply.ending == "dropped"
        assert engine.result(call).status == 200
        return
    engine.generate()
    engine.call("begin_weight_update", {})
    reply = engine.update()
    assert reply.ending == "dropped" if PROFILES[version].flush_failure == "die" else reply.status == 400


@pytest.mark.parametrize("version", ORDER)
def test_a_prompt_that_is_cached_whole_decodes_with_the_cached_kv(version: str) -> None:
    """After a prefill the request uses the cache's KV for all that the cache knows, its last prompt token included."""
    engine = Driver(version)
    engine.generate()
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    engine.update(flush_cache=False)
    old = engine.named("serve")[0]["weights"]
    call = engine.start("generate", generate_body(3))
    engine.advance(0.007)
    (request,) = engine.core.scheduler.batch.in_flight()
    new = engine.named("serve")[-1]["weights"]
    assert engine.named("serve")[-1]["kv"] == [old, new], "the first token comes from what was just computed"
    assert request.states[:5] == [old] * 5 != [new] * 5
    engine.result(call)
    body = generate_body(2, return_logprob=True)
    assert engine.call("generate", body).body["meta_info"]["cached_tokens"] == 4
