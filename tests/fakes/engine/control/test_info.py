"""/model_info and /server_info, every key of every version (http_server.py:590@0.5.12.post1, 812@0.5.23)."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from fakes.engine.profiles import ORDER
from tests.fakes.engine.control.driver import Driver

EMBEDDING = {
    "family": "none",
    "task": "none",
    "execution": "none",
    "attention": "none",
    "pooling": "model_defined",
    "normalize": False,
    "postprocessor": "none",
    "tokenizer_special_tokens": "model_default",
    "supports_dimensions": False,
    "supports_token_embeddings": False,
    "supports_multimodal": False,
    "requires_embedding_flag": False,
    "auto_enable_embedding": False,
    "bcg_eligibility": "disabled",
    "safe_disable_kv_cache": False,
    "safe_disable_radix_cache": False,
    "safe_disable_chunked_prefill": False,
    "enabled": False,
    "matryoshka_dimensions": [],
    "bcg": {
        "prefill_backend": "disabled",
        "enabled": False,
        "capture_token_budget": 2048,
        "capture_batch_sizes": [
            4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320,
            352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 832, 896, 960, 1024, 1280, 1536, 1792, 2048,
        ],
    },
    "cache": {"kv_cache_disabled": False, "radix_cache_disabled": False, "chunked_prefill_disabled": False},
}  # fmt: skip
MODEL: dict[str, Any] = {
    "model_path": "/models/tiny",
    "served_model_name": "/models/tiny",
    "tokenizer_path": "/models/tiny",
    "is_generation": True,
    "preferred_sampling_params": None,
    "weight_version": "launched",
    "load_format": "auto",
    "reasoning_parser": None,
    "tool_call_parser": None,
    "disaggregation_mode": "null",
    "has_image_understanding": False,
    "has_audio_understanding": False,
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "embedding": EMBEDDING,
}
NEWER = ("served_model_name", "load_format", "reasoning_parser", "tool_call_parser", "disaggregation_mode")


@pytest.mark.parametrize("version", ORDER)
def test_model_info(version: str) -> None:
    missing: tuple[str, ...] = ()
    if version in ("0.5.12.post1", "0.5.17"):
        missing = NEWER
    elif version not in ("0.5.21", "0.5.22", "0.5.23"):
        missing = ("disaggregation_mode",)
    if version == "0.5.12.post1":
        missing += ("embedding",)
    reply = Driver(version, weight_version="launched").call("model_info", method="GET")
    assert list(reply.body.items()) == [(key, value) for key, value in MODEL.items() if key not in missing]
    assert reply.value == reply.body


@pytest.mark.parametrize("version", ORDER)
def test_server_info(version: str) -> None:
    engine = Driver(
        version,
        weight_version="launched",
        tp_size=2,
        max_running_requests=5,
        max_total_tokens=700,
        random_seed=11,
        watchdog_timeout=77.0,
        enable_memory_saver=True,
        enable_weights_cpu_backup=True,
        device="cuda",
    )
    body = engine.call("server_info", method="GET").body
    given = {
        "model_path": "/models/tiny",
        "tokenizer_path": "/models/tiny",
        "served_model_name": "/models/tiny",
        "skip_tokenizer_init": True,
        "load_format": "auto",
        "dtype": "bfloat16",
        "device": "cuda",
        "tp_size": 2,
        "dp_size": 1,
        "max_running_requests": 5,
        "max_total_tokens": 700,
        "enable_memory_saver": True,
        "enable_weights_cpu_backup": True,
        "watchdog_timeout": 77.0,
        "random_seed": 11,
        "weight_version": "launched",
    }
    assert {name: body[name] for name in given} == given
    (state,) = body["internal_states"]
    assert {name: state[name] for name in given} == given
    assert state["memory_usage"]["token_capacity"] == 700
    assert state["effective_max_running_requests_per_dp"] == 5
    assert state["last_gen_throughput"] == 0.0
    assert (body["status"], body["max_total_num_tokens"], body["max_req_input_len"]) == ("ready", 700, 506)
    assert body["version"] == version
    assert body.get("frontend") == ("python" if version in ("0.5.21", "0.5.22", "0.5.23") else None)
    assert ("launch_command" in body) == (version in ("0.5.20", "0.5.21", "0.5.22", "0.5.23"))
    assert ("kv_events" in body) == ("startup_time" in body) == (version != "0.5.12.post1")
    assert ("world_size" in state) == (version not in ("0.5.12.post1", "0.5.17", "0.5.18"))


def test_server_info_says_how_the_server_was_launched() -> None:
    body = Driver("0.5.23", launch_command="--model-path m --port 1").call("server_info", method="GET").body
    assert body["launch_command"] == "--model-path m --port 1"
    assert Driver("0.5.23").call("server_info", method="GET").body["launch_command"] is None


ARGUMENTS = {
    "0.5.12.post1": 381, "0.5.17": 458, "0.5.18": 472, "0.5.19": 488, "0.5.20": 499, "miles": 488, "0.5.21": 519,
    "0.5.22": 536, "0.5.23": 546,
}  # fmt: skip
"""How many fields ServerArgs has (counted in the sources; miles as 0.5.19)."""


@pytest.mark.parametrize("version", ORDER)
def test_server_info_has_every_launch_argument_of_its_version(version: str) -> None:
    body = Driver(version).call("server_info", method="GET").body
    (state,) = body["internal_states"]
    own = {"last_gen_throughput", "memory_usage", "effective_max_running_requests_per_dp", "startup_time"}
    own |= {"world_size", "decode_cuda_graph_bs", "decode_cuda_graph_memory_gb"}
    sigquit = version != "0.5.12.post1"  # of a function, that is not sent
    assert len(set(state) - own) == ARGUMENTS[version] - sigquit
    assert set(state) - own <= set(body)
    assert body["page_size"] == 1
    assert ("quantize_and_serve" in body) == ("modelopt_quant" in body)
    assert "enable_lora" in body


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.17", "0.5.20", "0.5.21", "0.5.22", "0.5.23"])
def test_server_info_agrees_with_the_real_one_on_cpu(version: str) -> None:
    """validated: these six, cpu; apart from what belongs to one start of one server."""
    history = Path(__file__).parents[3] / "recorded" / "histories" / f"{version}-tp1-llama-float32-plain.jsonl.xz"
    calls, real = set(), None
    for line in lzma.decompress(history.read_bytes()).splitlines():
        record = json.loads(line)
        if record.get("kind") == "invoke" and record["op"] == "server_info":
            calls.add(record["call"])
        elif record.get("kind") == "complete" and record["call"] in calls:
            real = record["body"]
    assert real is not None
    engine = Driver(version, max_running_requests=8, dtype="float32", launch_command="--port 1")
    fake = engine.call("server_info", method="GET").body
    assert set(fake) == set(real)
    own = {"model_path", "tokenizer_path", "served_model_name", "host", "port", "random_seed", "internal_states"}
    own |= {"launch_command", "startup_time", "sleep_on_idle"}
    assert {name for name in fake if fake[name] != real[name]} <= own
    assert set(fake.get("startup_time", ())) == set(real.get("startup_time", ()))
    (state,), (there,) = fake["internal_states"], real["internal_states"]
    private = {name for name in there if name.startswith("_")}
    private |= {"enable_grpc", "grpc_port", "grpc_worker_threads", "use_mla_backend"}
    private |= {"max_speculative_num_draft_tokens"} if version == "0.5.17" else set()
    assert set(there) - set(state) <= private
    assert set(state) <= set(there)
    for name in ("memory_usage", "startup_time"):
        assert set(state.get(name, ())) == set(there.get(name, ())), name


def test_a_disk_update_moves_the_names_of_the_model_but_not_of_the_tokenizer() -> None:
    """managers/tokenizer_manager.py:2372@0.5.23."""
    engine = Driver("0.5.23")
    engine.disk["/models/b"] = list(engine.weights(1).items())
    assert engine.call("update_weights_from_disk", {"model_path": "/models/b", "load_format": "dummy"}).status == 200
    body = engine.call("model_info", method="GET").body
    names = ("model_path", "served_model_name", "tokenizer_path", "load_format")
    assert [body[name] for name in names] == ["/models/b", "/models/b", "/models/tiny", "dummy"]
    assert engine.call("server_info", method="GET").body["model_path"] == "/models/tiny"
