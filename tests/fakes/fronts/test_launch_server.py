"""SGLang's command line, by version, and what cannot be served: one line each."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from fakes.engine.profiles import PROFILES
from fakes.fronts import launch_server
from fakes.fronts.launch_args import HEALTH_VARIABLE, engine_config, parse
from fakes.fronts.launch_server import main
from fakes.fronts.started import StartError

# What trainers pass to SGLang's launcher.
TRAINERS = [
    "--model-path",
    "m",
    "--tp-size",
    "2",
    "--host",
    "127.0.0.1",
    "--port",
    "0",
    "--api-key",
    "k",
    "--admin-api-key",
    "a",
    "--watchdog-timeout",
    "600",
    "--enable-memory-saver",
    "--enable-weights-cpu-backup",
    "--weight-version",
    "v1",
    "--dtype",
    "float32",
    "--device",
    "cuda",
    "--dp-size",
    "1",
    "--max-total-tokens",
    "4k",
    "--max-running-requests",
    "16",
    "--mem-fraction-static",
    "0.3",
    "--skip-tokenizer-init",
    "--attention-backend",
    "torch_native",
    "--disable-cuda-graph",
    "--disable-overlap-schedule",
    "--disable-radix-cache",
    "--log-level",
    "error",
    "--random-seed",
    "7",
    "--trust-remote-code",
    "--nccl-port",
    "29500",
    "--served-model-name",
    "m",
    "--chunked-prefill-size",
    "2048",
]


@pytest.mark.parametrize("version", PROFILES)
def test_every_version_takes_what_trainers_pass(version):
    args = parse(["--fake-version", version, *TRAINERS])
    config = engine_config(args, None)
    assert (args.host, args.port, args.log_level) == ("127.0.0.1", 0, "error")
    assert (config.profile, config.model_path, config.tp_size, config.dp_size) == (version, "m", 2, 1)
    assert (config.dtype, config.device, config.weight_version) == ("float32", "cuda", "v1")
    assert (config.api_key, config.admin_api_key, config.watchdog_timeout) == ("k", "a", 600.0)
    assert (config.enable_memory_saver, config.enable_weights_cpu_backup) == (True, True)
    assert (config.max_total_tokens, config.max_running_requests, config.random_seed) == (4000, 16, 7)


def test_sglangs_defaults():
    args = parse(["--model", "m"])
    assert (args.host, args.port) == ("127.0.0.1", 30000)
    config = engine_config(args, "bfloat16")
    assert (config.tp_size, config.weight_version, config.watchdog_timeout) == (1, "default", 300)
    assert not config.enable_memory_saver


@pytest.mark.parametrize(
    ("given", "of_model", "dtype"),
    [("auto", "float32", "float32"), ("auto", None, "bfloat16"), ("float", "bfloat16", "float32")],
)
def test_dtype_comes_from_the_model_unless_given(given, of_model, dtype):
    assert engine_config(parse(["--model-path", "m", "--dtype", given]), of_model).dtype == dtype


def test_abbreviations_work_as_sglangs_do():
    assert parse(["--model-path", "m", "--tp", "2"]).given["tp_size"] == 2


def test_sglangs_variable_turns_the_health_generation_off(monkeypatch):
    monkeypatch.setenv(HEALTH_VARIABLE, "false")
    assert engine_config(parse(["--model-path", "m"]), None).health_generation is False


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ("--model-path m --no-such-option 3", "unrecognized arguments: --no-such-option 3"),
        ("--tp-size 2", "the following arguments are required: --model-path/--model"),
        ("--model-path m --tp-size two", "argument --tp-size/--tensor-parallel-size: invalid int value: 'two'"),
        ("--model-path m --dtype int3", "argument --dtype: invalid choice: 'int3'"),
        ("--model-path m --max-total-tokens 1.5Ki", "Invalid integer value: '1.5Ki'"),
        ("--model-path m --fake-version 0.5.19 --enable-expert-distribution-metrics", "no longer supported"),
        ("--model-path m --fake-version 0.5.12.post1 --no-enable-tf32-matmul", "unrecognized arguments"),
    ],
)
def test_what_sglang_refuses_is_refused_in_one_line(argv, line, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(argv.split())
    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert line in said
    assert said.startswith("launch_server: error: ")
    assert said.count("\n") == 1


def test_an_option_belongs_to_its_versions():
    assert parse(["--model-path", "m", "--no-enable-tf32-matmul"]).given["enable_tf32_matmul"] is False


@pytest.mark.parametrize(("option", "value"), [("--dtype", "half"), ("--device", "npu")])
def test_what_the_fake_cannot_serve_is_said_in_one_line(model, option, value, capsys):
    assert main(["--model-path", str(model), option, value]) == 4
    assert capsys.readouterr().err == f"launch_server: error: {option[2:]} {value} is not modelled; use " + (
        "bfloat16 or float32\n" if option == "--dtype" else "cpu or cuda\n"
    )


def test_a_port_that_is_taken(model, start, capsys):
    with start() as server:
        assert main(["--model-path", str(model), "--port", str(server.port)]) == 4
    said = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{server.port}: Address already in use; --port 0 takes any free one" in said


def test_a_server_that_does_not_come_up_shows_its_log(start, tmp_path):
    with pytest.raises(StartError, match="ended with code 2 before it was ready") as caught:
        start("--bogus", log=tmp_path / "log")
    assert "unrecognized arguments: --bogus" in str(caught.value)


def test_the_server_of_each_side_of_the_session_divide_answers(start, tmp_path):
    port_file = tmp_path / "port"
    for version, status in (("0.5.20", 404), ("0.5.23", 200)):
        with start("--fake-version", version, "--port-file", str(port_file), core=None) as server:
            assert int(port_file.read_text()) == server.port
            assert httpx.get(server.url + "/model_info").json()["weight_version"] == "default"
            assert httpx.get(server.url + "/health").status_code == 200
            assert httpx.post(server.url + "/begin_weight_update", json={}).status_code == status


def test_a_server_that_only_talks_never_imports_torch(model):
    code = (
        "import sys; from fakes.fronts.launch_server import build; from fakes.fronts.launch_args import parse;"
        "import uvicorn; front = build(parse(sys.argv[1:]));"
        "kept = {'torch', 'fastapi', 'ray', 'transformers'} & set(sys.modules); app = front.application();"
        "print(kept | ({'torch', 'ray'} & set(sys.modules)), type(app).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--model-path", str(model)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["set()", "FastAPI"]


def test_what_a_server_does_not_model_is_in_its_log(capsys):
    announce = launch_server._announce
    announce(parse(["--model-path", "m", "--pp-size", "2"]), 30000)
    said = capsys.readouterr()
    assert said.out == "refitcheck: fake SGLang 0.5.23 on http://127.0.0.1:30000\n"
    assert said.err == "refitcheck: not modelled, without effect here: --pp-size 2\n"
    announce(parse(["--model-path", "m", *TRAINERS[2:]]), 30000)
    assert capsys.readouterr().err == ""
