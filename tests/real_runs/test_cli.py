"""`refitcheck env` and `refitcheck real`: one line and an exit code for everything that can be wrong."""

import json

import pytest
from typer.testing import CliRunner

from real_runs import env, recorder, validation
from real_runs.cli import app, real_app


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path / "cache"))


RECORD = validation.Record(
    lane="sglang-cpu",
    engine="0.5.23",
    tp=1,
    date="2026-11-30",
    seconds=1.0,
    sources="",
    seed=0,
    fatal_sample=None,
    rules={},
    exercised={},
    unsupported={},
)


def run(which, *arguments):
    return CliRunner().invoke(which, list(arguments))


def test_an_unknown_version_is_a_usage_error():
    result = run(app, "make", "9.9")

    assert result.exit_code == 4
    assert result.stderr.startswith("refitcheck: no pins for SGLang '9.9'; known versions: 0.5.12.post1")
    assert len(result.stderr.splitlines()) == 1


def test_a_failure_to_make_it_is_a_harness_error(monkeypatch):
    def fail(version, **options):
        raise env.EnvError("no network: the package index cannot be reached")

    monkeypatch.setattr(env, "make", fail)
    result = run(app, "make", "0.5.23")

    assert (result.exit_code, result.stderr) == (3, "refitcheck: no network: the package index cannot be reached\n")


def test_make_prints_the_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(env, "make", lambda version, **options: env.SglangEnv(version, tmp_path / "p", tmp_path))

    assert run(app, "make", "0.5.23").stdout == f"{tmp_path}\n"


def test_list_says_which_are_ready():
    lines = run(app, "list").stdout.splitlines()

    assert [line.split()[0] for line in lines] == [*env.SUPPORTED, "megatron-bridge"]
    assert all(line.endswith("not made") for line in lines)


def test_remove_of_what_is_not_there():
    assert run(app, "remove", "0.5.23").stdout == "0.5.23: there was none\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "nothing/at-all"], "no sequence is wanted"),
        (["--version", "0.1"], "no pins for SGLang '0.1'"),
        (["--shape", "gpt"], "unknown model shape 'gpt'"),
        (["--flavour", "sour"], "unknown flavour 'sour'; one of plain, api_key"),
        (["--dtype", "int8"], "unknown dtype 'int8'; one of float32, bfloat16"),
    ],
)
def test_a_wrong_option_of_record_is_one_line(arguments, said, tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "find", lambda version: pytest.fail("no environment is needed for that"))
    result = run(real_app, "record", str(tmp_path / "out"), *arguments)

    assert result.exit_code == 4
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_keep_and_records(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"settings": {"kind": "fake", "lane": "fake"}, "results": []}))
    result = run(real_app, "keep", str(path))

    assert result.exit_code == 4
    assert result.stderr == "refitcheck: lane fake has no real engines\n"
    assert run(real_app, "records", str(tmp_path)).exit_code == 4
    assert one_line(run(real_app, "records", str(tmp_path / "nowhere"))).endswith("nowhere: no such folder")


def one_line(result, code=4):
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == 1
    return result.stderr.strip()


def test_record_makes_no_environment(tmp_path):
    """Two minutes and gigabytes must not come of a slip."""
    said = one_line(run(real_app, "record", str(tmp_path / "nope")))

    assert said == ("refitcheck: there is no environment of SGLang 0.5.23; `refitcheck env make 0.5.23` makes it")
    assert not (tmp_path / "nope").exists()


def test_an_output_that_is_a_file_is_one_line_before_a_server_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "find", lambda version: env.SglangEnv(version, tmp_path / "python", tmp_path))
    monkeypatch.setattr(recorder, "Recorder", lambda *given: pytest.fail("a server would start"))
    (tmp_path / "out").write_text("a file")

    assert one_line(run(real_app, "record", str(tmp_path / "out"))).endswith("out: File exists")


def test_a_recording_that_is_broken_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "find", lambda version: env.SglangEnv(version, tmp_path / "python", tmp_path))
    monkeypatch.setattr(recorder, "Recorder", lambda *given: pytest.fail("a server would start"))
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "0.5.23-tp1-llama-float32-plain.jsonl.xz"
    path.write_bytes(b"no xz")
    result = run(real_app, "record", str(tmp_path / "out"))

    assert "0.5.23-tp1-llama" in one_line(result)
    assert path.read_bytes() == b"no xz"


def test_an_unwritable_cache_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path / "file"))

    assert "cannot make the environment under" in one_line(run(app, "make", "0.5.23"))
    assert run(app, "list").exit_code == 0


def test_keep_where_nothing_can_be_written_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(validation, "from_results", lambda results: [RECORD])
    (tmp_path / "results.json").write_text("{}")
    (tmp_path / "out").write_text("a file")
    said = one_line(run(real_app, "keep", str(tmp_path / "results.json"), "--out", str(tmp_path / "out")))

    assert "out" in said
