"""The tokenizer manager alone: payload texts and bytes, which aborts are sent, replies that nobody awaits."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fakes.engine.generation import State
from fakes.engine.loop import Loop
from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import EngineConfig, Observed, Raised
from fakes.engine.tokenizer_manager import Communicator, TokenizerManager, normalize
from tests.fakes.engine.control.driver import Driver, generate_body

PICKLE = b"\x80\x04N."


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (base64.b64encode(PICKLE).decode(), PICKLE),
        ("", b""),
        (PICKLE, PICKLE),
        (bytearray(PICKLE), PICKLE),
        (memoryview(PICKLE), PICKLE),
        (base64.b64encode(PICKLE), PICKLE),
        (b"\x80\x00", b"\x80\x00"),
        (b"\x80\x05", b"\x80\x05"),
        (b"\x80\x06", b"\x80\x06"),
        (b"not base64!", b"not base64!"),
        (b"QUJD", b"ABC"),
        (b"Q", b"Q"),
        (b"\x80", b"\x80"),
        (b"", b""),
        (b"A\x01==", b"A\x01=="),
    ],
)
def test_payloads_in_process_are_text_bytes_or_base64_in_bytes(given: Any, wanted: bytes) -> None:
    """utils/common.py:3102@0.5.23."""
    found = normalize([given, given])
    assert found == [wanted, wanted]
    assert all(type(data) is bytes for data in found)


def test_a_payload_of_another_kind_is_a_type_error_and_a_text_that_does_not_decode_a_value_error() -> None:
    for bad in (5, None, ["x"]):
        with pytest.raises(TypeError) as error:
            normalize([bad])
        kind = type(bad).__name__
        assert str(error.value) == (
            f"serialized_named_tensors entries must be base64 strings or bytes-like payloads, got {kind}"
        )
    for text in ("!!!", "QUJ", "QU JD"):
        with pytest.raises(ValueError):
            normalize([text])


def manager(version: str = "0.5.23", **config: Any) -> tuple[TokenizerManager, list[Any], list[Observed]]:
    sent: list[Any] = []
    facts: list[Observed] = []
    loop = Loop()
    made = TokenizerManager(
        EngineConfig(profile=version, model_path="/m", **config),
        PROFILES[version],
        loop,
        send=lambda op, obj: sent.append((op, obj)),
        emit=facts.append,
    )
    return made, sent, facts


@pytest.mark.parametrize("version", ORDER)
def test_which_aborts_are_sent(version: str) -> None:
    """managers/tokenizer_manager.py:1489@0.5.12.post1, 1950@0.5.17, 2095@0.5.20: unknown ids, the empty one, twice."""
    tm, sent, _ = manager(version)
    tm.states["r"] = State(tm, "r", False)
    tm.states[""] = State(tm, "", False)
    for rid in ("nobody", None, "", "r", "r"):
        tm.abort_request(rid)
    tm.abort_request("r", abort_all=True)
    tm.abort_request(abort_all=True)
    profile = PROFILES[version]
    wanted = [] if profile.abort_unknown_rid_warns else [""] * (1 if profile.abort_once else 2)
    wanted += ["r"] if profile.abort_once else ["r", "r"]
    aborts = [("abort", {"rid": rid, "abort_all": False}) for rid in wanted]
    assert sent == [*aborts, ("abort", {"rid": "r", "abort_all": True}), ("abort", {"rid": "", "abort_all": True})]


def test_a_reply_that_nobody_waits_for_is_dropped_but_counts_as_a_sign_of_life() -> None:
    tm, sent, _ = manager()
    assert tm.last_receive < 0
    tm.receive("batch", [{"rid": "gone"}])
    tm.receive("abort", {"rid": "gone"})
    tm.receive("flush_cache", {"success": True})
    tm.communicator("flush_cache").receive({"success": False, "message": "stray"})
    assert tm.last_receive == 0.0
    task = tm.loop.spawn(tm.flush_cache(2.5))
    tm.loop.run(3.0)
    assert sent == [("flush_cache", {"timeout_s": 2.5})]
    assert not task.done
    tm.receive("flush_cache", {"success": True, "message": "mine"})
    tm.loop.run(3.0)
    assert task.result() == {"success": True, "message": "mine"}
    assert tm.last_receive == 3.0
    assert tm.communicator("flush_cache") is tm.communicator("flush_cache")


def test_a_communicator_has_one_call_in_flight() -> None:
    loop, sent = Loop(), []  # type: ignore[var-annotated]
    asked = Communicator(loop, lambda op, obj: sent.append((op, obj)), "op")

    async def call(number: int) -> Any:
        return await asked({"n": number})

    tasks = [loop.spawn(call(n)) for n in range(3)]
    loop.run(0.0)
    for n in range(3):
        assert sent == [("op", {"n": k}) for k in range(n + 1)]
        asked.receive(f"reply {n}")
        asked.receive("a second one is lost")
        loop.run(0.0)
    assert tasks[0].result() in ("reply 0", "a second one is lost")
    assert all(task.done for task in tasks)


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("version", ["0.5.21", "0.5.22"])
def test_the_guard_against_replicas(version: str, dp: int) -> None:
    tm, _, _ = manager(version, dp_size=dp)
    if dp == 1:
        tm.guard("x")
        return
    text = "dp_size must be 1 or dp attention must be enabled for x"
    with pytest.raises(AssertionError) as error:
        tm.guard("x")
    assert str(error.value) == (text if version == "0.5.21" else "data-parallel replicas are not supported for x")


@pytest.mark.parametrize("op", ["update_weights_from_distributed", "update_weights_from_disk"])
@pytest.mark.parametrize("abort", [True, False])
def test_an_update_aborts_what_runs_only_when_it_is_told_to(op: str, abort: bool) -> None:
    engine = Driver("0.5.20")
    group = {"master_address": "a", "master_port": 1, "rank_offset": 1, "world_size": 2, "group_name": "g"}
    engine.call("init_weights_update_group", {**group, "backend": "gloo"})
    engine.broadcast = [("model.norm.weight", engine.weights(1)["model.norm.weight"])]
    engine.disk["/b"] = []
    running = engine.start("generate", generate_body(30))
    engine.advance(0.02)
    spec = {"names": ["model.norm.weight"], "dtypes": ["bfloat16"], "shapes": [[64]], "group_name": "g"}
    body = spec if op == "update_weights_from_distributed" else {"model_path": "/b"}
    assert engine.call(op, {**body, "abort_all_requests": abort}).status == 200
    reason = engine.result(running).body["meta_info"]["finish_reason"]["type"]
    assert reason == ("abort" if abort else "length")


def test_a_disk_update_that_names_no_format_keeps_the_last_one_and_one_that_fails_moves_nothing() -> None:
    engine = Driver("0.5.20")
    engine.disk["/b"] = []
    engine.call("update_weights_from_disk", {"model_path": "/b", "load_format": "dummy"})
    engine.call("update_weights_from_disk", {"model_path": "/b"})
    reads = [effect.load_format for effect in engine.effects if type(effect).__name__ == "ReadDisk"]
    assert reads == ["dummy", "dummy"]
    assert engine.call("update_weights_from_disk", {"model_path": "/gone", "load_format": "auto"}).status == 400
    body = engine.call("model_info", method="GET").body
    assert (body["model_path"], body["load_format"]) == ("/b", "dummy")


def test_every_rank_counts_in_the_checksum_of_the_engine() -> None:
    sums = []
    for rank in (None, 0, 1):
        engine = Driver("0.5.23", tp_size=2)
        if rank is not None:
            engine.core.scheduler.ranks[rank].fill("model.norm.weight", 3.0)
        sums.append(engine.call("weights_checker", {}).body["per_engine_checksum"])
    assert len(set(sums)) == 3


def test_a_status_in_a_finish_reason_becomes_the_status() -> None:
    """managers/tokenizer_manager.py:1891@0.5.23: any 4xx and 5xx; before only 400, 500 and 503."""
    for version, statuses in (("0.5.23", {400, 418, 499, 500, 503, 599}), ("0.5.22", {400, 500, 503})):
        for status in (None, 200, 399, 400, 418, 499, 500, 503, 599, 600):
            engine = Driver(version)
            call = engine.start("generate", generate_body(40, rid="r"))
            engine.advance(0.01)
            (request,) = engine.core.scheduler.batch.in_flight()
            request.to_finish = {"type": "abort", "message": "because", "status_code": status, "err_type": None}
            reply = engine.result(call)
            if status not in statuses:
                assert reply.status == 200
            elif status == 400:
                assert (reply.status, reply.body) == (400, {"error": {"message": "because"}})
            else:
                error = {"object": "error", "message": "because", "type": str(status), "param": None, "code": status}
                assert (reply.status, reply.body) == (status, error)


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("model_info/", "GET", 307), ("model_info//", "GET", 307), ("nope/", "GET", 404), ("nope", "GET", 404)],
)
def test_slashes(path: str, method: str, status: int) -> None:
    assert Driver("0.5.23").call(path, method=method).status == status


def test_a_flush_in_process_takes_its_timeout() -> None:
    engine = Driver("0.5.23")
    engine.start("generate", generate_body(400))
    engine.advance(0.01)
    for given, seconds in (({"timeout_s": 0.5}, 0.5), ({"timeout_s": None}, 0.0), ({}, 0.0)):
        reply = engine.call("flush_cache", given, via="engine")
        assert reply.status == 400
        assert reply.elapsed_s == pytest.approx(seconds, abs=0.01)


def test_what_sglang_engine_does_not_have_is_an_attribute_error() -> None:
    value = Driver("0.5.20").call("begin_weight_update", {}, via="engine").value
    assert value == Raised("AttributeError", "'Engine' object has no attribute 'begin_weight_update'")


@pytest.mark.parametrize("version", ORDER)
def test_a_pause_mode_that_does_not_exist_in_process(version: str) -> None:
    """HTTP refuses it. A caller in process meets 0.5.12's own check, later an assert of the scheduler
    (managers/io_struct.py:1375@0.5.12.post1, managers/scheduler.py:4466@0.5.17)."""
    engine = Driver(version)
    reply = engine.call("pause_generation", {"mode": "bogus"}, via="engine")
    engine.advance(10)
    if version == "0.5.12.post1":
        told = "Invalid mode: 'bogus'. Expected one of ['abort', 'retract', 'in_place']."
        assert reply.value == Raised("ValueError", told)
        assert engine.died is None
        assert engine.call("generate", generate_body(2)).ok
    else:
        assert engine.died is not None
        assert engine.died.error == Raised("AssertionError", "")
