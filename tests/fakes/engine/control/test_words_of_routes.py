"""What control routes say at their edges: errors of the HTTP process, fields of one version, callers in process."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fakes.engine import profiles
from fakes.engine.control import _version_400
from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import Raised, Recv
from fakes.engine.requests import REQUIRED, structs
from fakes.engine.weight_update import hub_words
from tests.fakes.engine.control.driver import Driver, generate_body
from tests.fakes.engine.control.test_exceptions import PLANTED, planted

CAUGHT = {
    "release_memory_occupation": {},
    "resume_memory_occupation": {},
    "get_weights_by_name": {"name": "x"},
    "abort_request": {"rid": "x"},
    "slow_down": {"forward_sleep_time": None},
}


@pytest.mark.parametrize("op", CAUGHT)
def test_five_endpoints_answer_for_what_they_raise(op: str) -> None:
    """contract 1.2: `except Exception` in the endpoint."""
    engine = Driver("0.5.23")
    setattr(engine.core._tm, op, planted)
    reply = engine.call(op, CAUGHT[op])
    assert (reply.status, reply.body, reply.value) == (400, {"error": {"message": "planted"}}, PLANTED)


def test_a_version_that_cannot_be_set_is_told() -> None:
    """entrypoints/http_server.py:1552@0.5.23."""
    answer = _version_400(ValueError("x"))
    assert answer.status == 400
    assert answer.body["success"] is False
    assert answer.body["message"] == "Failed to update weight version: x"


@pytest.mark.parametrize("version", ORDER)
def test_the_receive_loop_of_a_living_scheduler_dies_late(version: str) -> None:
    """The handler waits for core dumps while a scheduler is alive (managers/tokenizer_manager.py@0.5.23)."""
    engine = Driver(version)
    engine.advance(1.0)
    engine.core._tm.receive = planted  # type: ignore[method-assign]  # the plant
    engine.call("flush_cache")
    p = PROFILES[version]
    assert engine.died_at == pytest.approx(1.0 + p.freeze_s + p.coredump_wait_s, abs=0.01)


@pytest.mark.parametrize("version", ORDER)
def test_a_pause_in_process_without_a_mode_is_an_abort(version: str) -> None:
    engine = Driver(version)
    assert engine.call("pause_generation", {}, via="engine").status == 200
    assert engine.call("slow_down", {"forward_sleep_time": None}, via="engine").status == 200


def test_a_pause_in_process_of_an_unknown_mode_is_no_reply_of_a_200() -> None:
    reply = Driver("0.5.12.post1").call("pause_generation", {"mode": "bogus"}, via="engine")
    assert reply.status == 500


@pytest.mark.parametrize("version", ORDER)
def test_the_fields_of_an_abort(version: str) -> None:
    """managers/io_struct.py AbortReq."""
    p = PROFILES[version]
    (abort,) = [struct for name, struct in structs(p).items() if name == "AbortReq"]
    kinds = {field.name: field.kind for field in abort.fields}
    assert kinds["finished_reason"] == ("dict?" if version == "0.5.12.post1" else "reason?")
    assert ("weight_versions" in kinds) is p.spans
    assert kinds["abort_message"] == "str?"


@pytest.mark.parametrize("version", ORDER)
def test_what_all_requests_have_comes_first_in_a_struct_and_last_in_a_dataclass(version: str) -> None:
    """managers/io_struct.py:86@0.5.23: a base class; errors are told in this order."""
    for name, struct in structs(PROFILES[version]).items():
        fields = [field.name for field in struct.fields]
        base = fields[-2:] if version == "0.5.12.post1" else fields[:2]
        assert base == ["rid", "http_worker_ipc"], name


def test_a_check_may_allow_quantisation_errors() -> None:
    engine = Driver("0.5.23")
    assert engine.call("weights_checker", {"action": "checksum", "allow_quant_error": True}).status == 200
    assert engine.call("weights_checker", {"action": "checksum", "allow_quant_error": "perhaps"}).status == 400
    assert repr(REQUIRED) == "REQUIRED"


@pytest.mark.parametrize("version", ORDER)
def test_a_fake_starts_in_no_time_and_weighs_nothing(version: str) -> None:
    body = Driver(version).call("server_info", method="GET").body

    def numbers(value: Any) -> list[float]:
        if isinstance(value, dict):
            return [number for each in value.values() for number in numbers(each)]
        return [value] if isinstance(value, int | float) else []

    state = body["internal_states"][0]
    memory = {name: value for name, value in state["memory_usage"].items() if name != "token_capacity"}
    spent = [body.get("startup_time"), state.get("startup_time"), state.get("decode_cuda_graph_memory_gb"), memory]
    assert {number for each in spent for number in numbers(each)} == {0}


def test_the_only_replica_is_number_0() -> None:
    (load,) = Driver("0.5.20").call("get_load", method="GET").body
    assert load["dp_rank"] == 0


def test_a_payload_that_does_not_decode_in_process_is_the_callers_error_from_0_5_17() -> None:
    """utils/common.py:3102@0.5.23; 0.5.12 decodes in its scheduler, which dies."""
    for version in ("0.5.20", "0.5.12.post1"):
        engine = Driver(version)
        engine.call("update_weights_from_tensor", {"serialized_named_tensors": ["***"]}, via="engine")
        engine.advance(30.0)
        assert (engine.died is not None) is (version == "0.5.12.post1")


def test_a_payload_in_process_may_be_base64_in_bytes() -> None:
    engine = Driver("0.5.20")
    text = engine.payload(engine.weights(1))
    fields = {"serialized_named_tensors": [text.encode()]}
    assert base64.b64decode(text)[:1] == b"\x80"
    reply = engine.call("update_weights_from_tensor", fields, via="engine")
    assert (reply.status, engine.died) == (200, None)


def test_a_session_without_a_selector_is_for_all() -> None:
    engine = Driver("0.5.23")
    engine.core.scheduler.updater.handlers()["begin_weight_update"]({})
    assert engine.core.scheduler.updater.session is not None
    assert engine.core.scheduler.updater.session.selector == "all"


def test_an_update_that_says_nothing_of_the_cache_flushes_it() -> None:
    engine = Driver("0.5.23")
    engine.generate(4)
    assert engine.core.scheduler.cache.size > 0
    engine.core.scheduler.updater._after_load({}, "update_weights_from_distributed", "done", barrier=False)
    assert engine.core.scheduler.cache.size == 0


def test_a_selector_that_does_not_exist_in_process() -> None:
    """The checker answers; miles's distributed update does too, where others die of it."""
    reply = Driver("0.5.23").call("weights_checker", {"action": "checksum", "selector": "bogus"}, via="engine")
    success, message, *_ = reply.value
    assert (success, "bogus" in message, reply.body["success"]) == (False, True, False)


GROUP = {"master_address": "a", "master_port": 1, "rank_offset": 1, "world_size": 2, "backend": "gloo"}


def joined(version: str) -> Driver:
    engine = Driver(version)
    assert engine.call("init_weights_update_group", GROUP).status == 200
    if PROFILES[version].session != "none":
        assert engine.call("begin_weight_update", {}).status == 200
    return engine


def test_a_selector_that_does_not_exist_in_a_distributed_update_of_miles_is_answered() -> None:
    """weight_updater.py:236@miles-00a2ca2e: looked at inside the try."""
    engine = joined("miles")
    body = {"names": [], "dtypes": [], "shapes": [], "selector": "bogus"}
    reply = engine.call("update_weights_from_distributed", body, via="engine")
    assert reply.value[0] is False
    assert engine.died is None


def test_broadcasts_before_the_wrong_one_are_under_way() -> None:
    """model_runner_components/weight_updater.py:280@0.5.22: posted one by one, and nobody waits for them."""
    engine = joined("0.5.22")
    body = {"names": ["a", "b"], "dtypes": ["float32", "nonsense"], "shapes": [[1], [1]]}
    reply = engine.call("update_weights_from_distributed", body)
    assert reply.status == 400
    assert "nonsense" in reply.body["message"]
    posted = [effect for effect in engine.effects if isinstance(effect, Recv)]
    assert [(effect.rank, effect.names, effect.waits) for effect in posted] == [(0, ["a"], False)]
    assert engine.call("flush_cache").status == 200


def test_a_file_that_is_no_safetensors_kills() -> None:
    engine = Driver("0.5.23")
    engine.disk["/new"] = Raised("SafetensorError", "HeaderTooLarge")  # type: ignore[assignment]  # what reading gives
    reply = engine.call("update_weights_from_disk", {"model_path": "/new"})
    assert reply.ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("SafetensorError", "HeaderTooLarge")


@pytest.mark.parametrize(
    ("path", "form"), [("a", False), ("a/b", False), ("/a", False), ("/a/b", True), ("a/b/c", True)]
)
def test_slashes_are_counted_in_a_repositorys_name(path: str, form: bool) -> None:
    """huggingface_hub, for a folder that does not exist; seen on 0.5.23."""
    assert ("must be in the form" in hub_words(path)) is form


def test_a_profile_says_where_each_change_comes_from() -> None:
    base = PROFILES["0.5.23"]
    with pytest.raises(ValueError, match=r"profile 0\.5\.99: no source for \['decode_step_s', 'freeze_s'\]"):
        profiles._next(base, "0.5.99", {"spans": "x"}, decode_step_s=1.0, freeze_s=1.0)
    made = profiles._next(base, "0.5.99", {"freeze_s": "seen"}, freeze_s=1.0)
    assert (made.version, made.freeze_s, made.sources["freeze_s"]) == ("0.5.99", 1.0, "seen")
    assert made.sources["version"] == "PyPI sglang 0.5.99"
    assert {**made.sources, "version": "", "freeze_s": ""} == {**base.sources, "version": "", "freeze_s": ""}


def test_ranks_that_load_other_names_make_nothing_whole() -> None:
    """Rank 0's names count: what only another rank was sent leaves the weights torn."""
    engine = Driver("0.5.23", tp_size=2)
    updater = engine.core.scheduler.updater
    updater.wholeness.break_()
    names = sorted(engine.weights(0))
    updater._fact(1, names, 1, None, "")
    assert updater.torn
    updater._fact(0, names, 0, None, "")
    assert not updater.torn
    assert engine.call("generate", generate_body(1)).status == 200
