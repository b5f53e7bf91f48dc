"""What a launch cannot work with: one line that says what, where and what to do, exit code 4, before it listens."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from fakes.fronts.launch_args import parse
from fakes.fronts.launch_checks import without_effect
from fakes.fronts.launch_server import main
from harness.serving import serve


@pytest.fixture
def refused(capsys):
    def refused(*argv):
        with pytest.raises(SystemExit) as caught:
            raise SystemExit(main(list(argv)))
        said = capsys.readouterr()
        assert caught.value.code == 4
        assert said.err.startswith("launch_server: error: ")
        assert said.err.count("\n") == 1
        assert said.out == ""
        return said.err

    return refused


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--tp-size", "0", "--tp-size 0: must be 1 or more"),
        ("--tp-size", "-1", "--tp-size -1: must be 1 or more"),
        (
            "--tp-size",
            "3",
            "does not divide the model's 4 attention heads and intermediate size 128; use one of 1, 2, 4",
        ),
        ("--dp-size", "0", "--dp-size 0: must be 1 or more"),
        ("--max-total-tokens", "0", "--max-total-tokens 0: must be 1 or more"),
        ("--max-running-requests", "-3", "--max-running-requests -3: must be 1 or more"),
        ("--watchdog-timeout", "nan", "must be a finite number of seconds greater than 0"),
        ("--watchdog-timeout", "0", "must be a finite number of seconds greater than 0"),
        ("--port", "99999", "--port 99999: must be between 0 (any free one) and 65535"),
        ("--port", "-1", "--port -1: must be between 0"),
        ("--host", "no such host", "cannot listen on no such host:0: Name or service not known"),
        ("--log-level", "nope", "--log-level nope: unknown; use one of critical, error"),
        ("--core", "os:system", "--core os:system: TypeError: system() takes"),
        ("--core", "collections:namedtuple", "--core collections:namedtuple: "),
        ("--core", "types:SimpleNamespace", "--core types:SimpleNamespace: "),
        ("--core", "tests.fakes.fronts.test_launch_refusals:no_core", "makes no engine core"),
        ("--core", "json", "module 'json' has no attribute ''; name it as module:factory"),
        ("--core", "no.such:thing", "--core no.such:thing: No module named 'no'; name it as module:factory"),
        ("--core", ":x", "name it as module:factory"),
        ("--time-scale", "nan", "argument --time-scale: must be a finite number, not 'nan'"),
        ("--time-scale", "inf", "argument --time-scale: must be a finite number, not 'inf'"),
        ("--time-scale", "0", "argument --time-scale: must be greater than 0 and at most 100, not 0"),
        ("--time-scale", "101", "at most 100, not 101"),
        ("--max-body-mb", "-1", "argument --max-body-mb: must be 1 or more, not -1"),
        ("--max-body-mb", "x", "argument --max-body-mb: must be a whole number, not 'x'"),
        ("--epoch", "nan", "argument --epoch: must be a finite number, not 'nan'"),
        ("--incarnation", "-1", "argument --incarnation: must be 0 or more, not -1"),
        ("--fake-version", "0.4", "argument --fake-version: invalid choice: '0.4'"),
        ("--port-file", "/no/such/folder/x", "there is no folder /no/such/folder; make it first"),
        ("--port-file", "/", "--port-file /: cannot be written"),
        ("--ready-fd", "99", "--ready-fd 99: no such open file descriptor"),
        ("--parent-fd", "99", "--parent-fd 99: no such open file descriptor"),
        ("--parent-fd", "99999999999", "no such open file descriptor"),
        ("--trace", "/no/such/folder/t", "--trace /no/such/folder/t: No such file or directory"),
        ("--trace", "/dev/full", "--trace /dev/full: No space left on device"),
        ("--dtype", "half", "dtype half is not modelled; use bfloat16 or float32"),
    ],
)
def test_a_value_that_cannot_be_served(model, refused, option, value, says):
    assert says in refused("--model-path", str(model), "--port", "0", option, value)


def no_core(config, weights, model_config):
    return object()


@pytest.mark.parametrize(("flag", "end"), [("--ready-fd", 0), ("--parent-fd", 1)])
def test_the_wrong_end_of_a_pipe_and_what_is_no_pipe(model, refused, tmp_path, flag, end):
    pipe = os.pipe()
    with (tmp_path / "file").open("w") as file:
        assert "is no pipe; pass one end of a pipe" in refused("--model-path", str(model), flag, str(file.fileno()))
    assert "end of its pipe" in refused("--model-path", str(model), flag, str(pipe[end]))
    for fd in pipe:
        os.close(fd)


def _config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def _cut(folder):
    (tensors,) = folder.glob("*.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-1000])


def _without_weights(folder):
    (tensors,) = folder.glob("*.safetensors")
    tensors.unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (shutil.rmtree, "No such file or directory"),
        (_without_weights, "no *.safetensors in"),
        (_cut, "is not a safetensors file that can be served"),
        (lambda f: (f / "config.json").write_text("{"), "Expecting property name"),
        (lambda f: (f / "config.json").write_text("[" * 100_000), "nested too deeply"),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\0"), "codec can't decode"),
        (lambda f: (f / "config.json").write_text('{"model_type": "llama"}'), "hidden_size is None in config.json"),
        (lambda f: _config(f, num_attention_heads=0), "num_attention_heads is 0 in config.json"),
        (lambda f: _config(f, hidden_size="64"), "hidden_size is '64' in config.json"),
        (lambda f: _config(f, vocab_size=True), "vocab_size is True in config.json"),
        (lambda f: _config(f, num_hidden_layers=10**7), "more than 1000 layers"),
        (lambda f: _config(f, num_hidden_layers=3), "tensor model.layers.2.self_attn.q_proj.weight is missing"),
        (
            lambda f: _config(f, vocab_size=500),
            "embed_tokens.weight has shape [512, 64], config.json makes it [500, 64]",
        ),
        (lambda f: _config(f, model_type="gpt2"), "model_type 'gpt2' cannot be served"),
        (lambda f: _config(f, rms_norm_eps=None), "cannot be served: "),
    ],
)
def test_a_model_folder_that_is_none(model, refused, tmp_path, spoil, says):
    folder = tmp_path / "m"
    shutil.copytree(model, folder)
    spoil(folder)
    said = refused("--model-path", str(folder))
    assert f"--model-path {folder}: " in said
    assert says in said
    assert "`refitcheck model FOLDER` makes a tiny one that works" in said


def test_serve_says_the_same_with_exit_code_4(model, capsys):
    assert serve(["--model-path", str(model), "--tp-size", "0"]) == 4
    assert serve(["--model-path", str(model), "--no-such-option"]) == 4
    assert serve(["--model-path", str(model), "--time-scale", "nan"]) == 4
    assert capsys.readouterr().err.count("\n") == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--pp-size", "2", "--nnodes", "2"), ["--pp-size 2", "--nnodes 2"]),
        (("--enable-dp-attention", "--load-format", "dummy"), ["--enable-dp-attention", "--load-format dummy"]),
        (("--pp-size", "1", "--load-format", "auto", "--mem-fraction-static", "0.8"), []),
        (("--speculative-algorithm", "EAGLE"), ["--speculative-algorithm EAGLE"]),
    ],
)
def test_what_would_make_another_engine_is_told(options, told):
    assert without_effect(parse(["--model-path", "m", *options]).given) == told
