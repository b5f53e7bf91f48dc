"""Health, readiness, model info, groups, disk, the checker: the smaller answers."""

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import Raised
from tests.fakes.engine.control.driver import Driver, generate_body

GROUP = {"master_address": "127.0.0.1", "master_port": 29500, "rank_offset": 1, "world_size": 2, "group_name": "g1"}


@pytest.mark.parametrize("version", ORDER)
@pytest.mark.parametrize("op", ["health", "health_generate"])
def test_health_takes_a_second_and_twenty_when_paused(version: str, op: str) -> None:
    engine = Driver(version)
    reply = engine.call(op, method="GET")
    assert (reply.status, reply.body, reply.elapsed_s) == (200, None, pytest.approx(1.0))
    engine.call("pause_generation", {"mode": "retract"})
    reply = engine.call(op, method="GET")
    assert (reply.status, reply.elapsed_s) == (503, pytest.approx(20.0))
    engine.call("continue_generation", {})
    assert engine.call(op, method="GET").status == 200


def test_any_reply_counts_as_a_sign_of_life() -> None:
    engine = Driver("0.5.23")
    engine.call("pause_generation", {})
    health = engine.start("health", method="GET")
    engine.advance(5.5)
    engine.call("flush_cache")
    assert engine.result(health).elapsed_s == pytest.approx(6.0)
    assert engine.result(health).status == 200


def test_health_of_a_busy_engine_runs_nothing_and_leaves_no_lock() -> None:
    engine = Driver("0.5.23")
    call = engine.start("generate", generate_body(80))
    engine.advance(0.1)
    assert engine.call("health_generate", method="GET").status == 200
    assert not [f for f in engine.named("request") if f["rid"].startswith("HEALTH_CHECK")]
    engine.result(call)
    assert engine.call("pause_generation", {"mode": "abort"}).elapsed_s == 0.0


def test_health_without_generation_answers_at_once_and_health_generate_still_generates() -> None:
    engine = Driver("0.5.23", health_generation=False)
    engine.call("pause_generation", {})
    assert engine.call("health", method="GET").elapsed_s == 0.0
    assert engine.call("health_generate", method="GET").status == 503


@pytest.mark.parametrize("version", ORDER)
def test_ready_and_ping(version: str) -> None:
    engine = Driver(version)
    engine.call("pause_generation", {})
    ready = engine.call("ready", method="GET").status
    assert ready == (503 if PROFILES[version].ready_route else 404)
    assert engine.call("ping", method="GET").status == 200
    engine.call("health", method="GET")
    assert engine.call("ping", method="GET").status == (503 if version == "0.5.23" else 200)


@pytest.mark.parametrize("version", ORDER)
def test_model_info_has_the_keys_of_its_version(version: str) -> None:
    body = Driver(version).call("model_info", method="GET").body
    assert list(body)[:9] == list(PROFILES[version].model_info)[:9]
    assert ("disaggregation_mode" in body) == (version in ("0.5.21", "0.5.22", "0.5.23"))
    assert ("served_model_name" in body) == (version not in ("0.5.12.post1", "0.5.17"))
    assert body["weight_version"] == "default"
    assert Driver(version).call("get_model_info", method="GET").body == body


@pytest.mark.parametrize("version", ORDER)
def test_server_info_needs_the_scheduler(version: str) -> None:
    engine = Driver(version)
    body = engine.call("server_info", method="GET").body
    assert ("frontend" in body) == (version in ("0.5.21", "0.5.22", "0.5.23"))
    engine.hang.add("Join")
    engine.start("init_weights_update_group", {**GROUP, "backend": "gloo"})
    assert engine.call("server_info", method="GET", timeout=5).ending == "timeout"
    assert engine.call("model_info", method="GET").status == 200


@pytest.mark.parametrize("version", ORDER)
def test_server_info_shows_a_live_version_only_up_to_0_5_17(version: str) -> None:
    engine = Driver(version, weight_version="launched")
    engine.call("update_weight_version", {"new_version": "2"})
    live = version in ("0.5.12.post1", "0.5.17")
    assert engine.call("server_info", method="GET").body["weight_version"] == ("2" if live else "launched")


def test_a_rendezvous_blocks_everything_but_the_http_process() -> None:
    engine = Driver("0.5.23", tp_size=2)
    engine.hang.add("Join")
    init = engine.start("init_weights_update_group", {**GROUP, "backend": "gloo"})
    assert [e.group_rank for e in engine.effects if type(e).__name__ == "Join"] == [1, 2]
    assert engine.call("begin_weight_update", {}, timeout=10).ending == "timeout"
    assert engine.call("generate", generate_body(), timeout=10).ending == "timeout"
    assert engine.call("health", method="GET").status == 503
    assert not engine.done(init)


@pytest.mark.parametrize("version", ORDER)
def test_groups(version: str) -> None:
    engine = Driver(version)
    ok = {"success": True, "message": "Succeeded to initialize custom process group."}
    assert engine.call("init_weights_update_group", {**GROUP, "backend": "gloo"}).body == ok
    again = engine.call("init_weights_update_group", {**GROUP, "backend": "gloo"})
    assert again.body["message"] == (
        "Failed to initialize custom process group: The specified group name has already been created, "
        "please use a different group name."
    )
    nccl = engine.call("init_weights_update_group", {**GROUP, "rank_offset": 0, "world_size": 1, "group_name": "g3"})
    assert (nccl.status, nccl.body["message"]) == (
        400,
        "Failed to initialize custom process group: Distributed package doesn't have NCCL built in.",
    )
    missing = engine.call("destroy_weights_update_group", {"group_name": "nope"})
    assert (missing.status, missing.body["message"]) == (400, "The group to be destroyed does not exist.")
    gone = engine.call("destroy_weights_update_group", {"group_name": "g1"})
    assert gone.body == {"success": True, "message": "Succeeded to destroy custom process group."}


@pytest.mark.parametrize("version", ORDER)
def test_a_broadcast_without_its_group(version: str) -> None:
    engine = Driver(version)
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    body = {"names": ["model.norm.weight"], "dtypes": ["bfloat16"], "shapes": [[64]], "group_name": "g1"}
    reply = engine.call("update_weights_from_distributed", body)
    text = "Group g1 not in []. Please call `init_weights_update_group` first."
    if PROFILES[version].group_missing == "die":
        assert reply.ending == "dropped"
        assert engine.died is not None
        assert engine.died.error == Raised("AssertionError", text)
    elif version == "miles":
        assert reply.body["message"].startswith(f"Failed to update parameter online: {text}. The full weights")
    else:
        assert (reply.status, reply.body["message"]) == (400, f"Failed to receive weights: {text}")


@pytest.mark.parametrize("version", ORDER)
def test_a_broadcast(version: str) -> None:
    engine = Driver(version)
    engine.call("init_weights_update_group", {**GROUP, "backend": "gloo"})
    if PROFILES[version].session != "none":
        engine.call("begin_weight_update", {})
    named = engine.weights(1)
    engine.broadcast = list(named.items())
    body = {
        "names": list(named),
        "dtypes": ["bfloat16"] * len(named),
        "shapes": [list(v.shape) for v in named.values()],
        "group_name": "g1",
    }
    reply = engine.call("update_weights_from_distributed", {**body, "weight_version": "d1"})
    text = "Succeeded to update parameter online. Weight version updated to d1."
    assert reply.body == {"success": True, "message": text}
    assert engine.generate() == engine.expected(1)
    engine.broadcast = [("model.norm.weight", named["model.norm.weight"][:62])]
    reply = engine.call("update_weights_from_distributed", body)
    assert (reply.status, reply.body["message"]) == (
        400,
        "Failed to update parameter online: Attempted to load weight (torch.Size([62])) into parameter "
        "(torch.Size([64])). The full weights of the ModelRunner are partially updated. "
        "Please discard the whole weights.",
    )
    reply = engine.call("update_weights_from_distributed", {**body, "dtypes": ["notadtype"] * len(named)})
    assert "module 'torch' has no attribute 'notadtype'" in reply.body["message"]
    assert engine.died is None


@pytest.mark.parametrize("version", ORDER)
def test_disk_works_in_and_out_of_sessions_and_moves_the_path(version: str) -> None:
    engine = Driver(version)
    engine.disk["/models/b"] = list(engine.weights(1).items())
    reply = engine.call("update_weights_from_disk", {"model_path": "/models/b", "weight_version": "disk1"})
    text = "Succeeded to update model weights. Weight version updated to disk1."
    assert reply.body == {"success": True, "message": text, "num_paused_requests": 0}
    info = engine.call("model_info", method="GET").body
    assert (info["model_path"], info["weight_version"]) == ("/models/b", "disk1")
    assert engine.generate() == engine.expected(1)
    reply = engine.call("update_weights_from_disk", {"model_path": "/nonexistent"})
    assert (reply.status, reply.body["message"]) == (
        400,
        "Failed to get weights iterator: Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot start "
        "or end with '-' or '.' and the maximum length is 96: '/nonexistent'..",
    )
    assert engine.call("model_info", method="GET").body["model_path"] == "/models/b"


@pytest.mark.parametrize("version", ORDER)
def test_checker_on_cpu(version: str) -> None:
    """Up to 0.5.22 every action that hashes calls Tensor.cuda(); 0.5.12 has no default action and no GET."""
    engine = Driver(version)
    checksum = engine.call("weights_checker", {"action": "checksum"})
    assert checksum.status == (200 if version == "0.5.23" else 400)
    if version != "0.5.23":
        assert checksum.body["message"] == "Torch not compiled with CUDA enabled"
    assert engine.call("weights_checker", method="GET").status == (
        405 if version == "0.5.12.post1" else checksum.status
    )
    assert engine.call("weights_checker", {"action": "snapshot"}).body == {"success": True, "message": "Success."}
    compare = engine.call("weights_checker", {"action": "compare"})
    assert (compare.status, compare.body["message"]) == (400, "Torch not compiled with CUDA enabled")
    bogus = engine.call("weights_checker", {"action": "bogus"})
    assert (bogus.status, bogus.body) == (400, {"success": False, "message": "Unsupported action='bogus'"})


def test_checksums_come_from_every_rank() -> None:
    engine = Driver("0.5.23", tp_size=2)
    body = engine.call("weights_checker", {}).body
    assert list(body) == ["success", "message", "ranks", "per_engine_checksum"]
    assert [rank["parallelism_info"][0]["tp_rank"] for rank in body["ranks"]] == [0, 1]
    assert len(body["per_engine_checksum"]) == 64


@pytest.mark.parametrize("version", ORDER)
def test_ipc_without_its_package(version: str) -> None:
    reply = Driver(version).call("update_weights_from_ipc", {"zmq_handles": {}})
    assert (reply.status, reply.body["message"]) == (
        400,
        "IPC weight update failed: ImportError checkpoint-engine is not installed. "
        "Please install it with: pip install sglang[checkpoint-engine]",
    )


@pytest.mark.parametrize("shape", ["llama", "qwen2", "qwen3"])
def test_only_llama_gives_its_weights_by_name(shape: str) -> None:
    engine = Driver("0.5.23", shape=shape)
    reply = engine.call("get_weights_by_name", {"name": "model.norm.weight", "truncate_size": 4})
    if shape == "llama":
        assert (reply.status, len(reply.body)) == (200, 4)
    else:
        assert (reply.status, reply.body) == (400, {"error": {"message": "Get parameter by name failed"}})


def test_the_embedding_plan_of_a_model_that_does_not_embed() -> None:
    plan = Driver("0.5.23").call("model_info", method="GET").body["embedding"]
    sizes = plan["bcg"]["capture_batch_sizes"]
    assert sizes[:3] + sizes[-2:] == [4, 8, 12, 1792, 2048]
    assert (len(sizes), 272 in sizes, 288 in sizes) == (42, False, True)
