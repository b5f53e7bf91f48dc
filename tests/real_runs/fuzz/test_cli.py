"""The command `refitcheck diff`, over scripted oracles and fakes in the real side's place."""

import contextlib

import pytest
import typer
from typer.testing import CliRunner

from harness.errors import HarnessError, UsageError
from real_runs.fuzz import cli, oracle_run, records, server_run
from real_runs.fuzz.server_cells import LIVES
from real_runs.fuzz.sides import Attached, FakeSide, attached, tiny
from real_runs.fuzz.tape import read
from tests.real_runs.fuzz.scripted_oracle import ScriptedOracle, lies_about_a_second_begin
from tests.real_runs.fuzz.test_server_search import WORDS, plant


def settings(tmp_path, **more):
    return oracle_run.OracleSettings(
        "0.5.23", 300, 0, keep_record=tmp_path / "records", keep_corpus=tmp_path / "corpus", **more
    )


def test_a_green_run_keeps_its_record_and_its_corpus(tmp_path):
    said = []
    assert oracle_run.run(settings(tmp_path), ScriptedOracle(), said.append)
    (record,) = records.read(tmp_path / "records")
    assert (record.kind, record.profile, record.seed) == ("oracle", "0.5.23", 0)
    assert record.steps >= 300
    assert record.cells + len(record.missing) == record.reachable
    assert (tmp_path / "corpus" / "oracle-0.5.23.jsonl.xz").exists()
    assert "unexplained differences 0" in "\n".join(said)


def test_a_run_that_finds_something_keeps_nothing_and_prints_how_to_see_it_again(tmp_path):
    said = []
    oracle = ScriptedOracle(lie=lies_about_a_second_begin)
    assert not oracle_run.run(settings(tmp_path), oracle, said.append)
    assert not (tmp_path / "records").exists()
    text = "\n".join(said)
    assert "replay  refitcheck diff --oracle --engine 0.5.23 --steps 300 --seed 0" in text
    assert "def test_begin_weight_update" in text


@pytest.fixture
def sides(monkeypatch):
    monkeypatch.setattr(
        server_run, "why_not", lambda words, fake, reached: {("begin_weight_update", "free idle"): LIVES}
    )

    def use(under=contextlib.nullcontext):
        model = tiny()
        side = FakeSide("0.5.23", model, under)
        side.close = lambda: None
        monkeypatch.setattr(server_run, "real_side", lambda chosen, say: side)

    return use


def against(tmp_path, steps=60):
    return server_run.ServerSettings(
        "sglang-cpu:0.5.23", "0.5.23", steps, 0, keep_record=tmp_path, keep_corpus=tmp_path
    )


def test_a_green_run_against_a_server_prints_its_cells_and_keeps_a_record(tmp_path, sides):
    sides()
    said = []
    assert server_run.run(against(tmp_path), said.append)
    (record,) = records.read(tmp_path)
    assert (record.kind, record.version) == ("server-tp1", "0.5.23")
    assert record.missing == [f"begin_weight_update while free idle: {LIVES}"]
    assert record.reachable == record.cells + 1
    assert "of what this lane can reach" in "\n".join(said)
    assert read(tmp_path / "server-tp1-0.5.23.jsonl.xz")


def test_a_difference_from_a_server_is_told_with_its_steps(tmp_path, sides):
    sides(plant("label-lost"))
    said = []
    assert not server_run.run(against(tmp_path, steps=100), said.append)
    text = "\n".join(said)
    assert "✗ sglang-cpu:0.5.23 differs from fake 0.5.23" in text
    assert "body.weight_version" in text
    assert records.read(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "diff needs one of --oracle and --against"),
        (["--oracle", "--against", "x"], "diff needs one of --oracle and --against"),
        (["--oracle", "--engine", "9"], "unknown engine version '9'"),
        (["--oracle", "--engine", "miles"], "miles has no wheel: give --checkout"),
        (["--oracle", "--checkout", "/no/such/folder"], "/no/such/folder: no such folder"),
        (["--against", "x", "--derive", "0.5.21"], "--derive asks the oracle"),
        (["--oracle", "--derive", "9"], "unknown engine version '9'"),
        (["--against", "sglang-cpu:0.5.9"], "no pins for SGLang '0.5.9'"),
        (["--against", "nonsense"], "nonsense: not a URL with a port"),
        (["--against", "http://[::1"], "http://[::1: Invalid IPv6 URL"),
        (["--against", "http://127.0.0.1:99999"], "http://127.0.0.1:99999: Port out of range"),
        (["--against", "http://127.0.0.1:1", "--profile", "9"], "unknown engine version '9'"),
    ],
)
def test_wrong_options_are_told_in_one_line(options, text):
    app = typer.Typer()
    app.command()(cli.diff)
    result = CliRunner().invoke(app, options)
    assert isinstance(result.exception, UsageError)
    assert text in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_version_without_an_environment_says_how_to_make_it(tmp_path, monkeypatch):
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"refitcheck env make 0\.5\.20"):
        oracle_run.start(oracle_run.OracleSettings("0.5.20", 1, 0))
    with pytest.raises(UsageError, match=r"refitcheck env make 0\.5\.20"):
        server_run.real_side(server_run.ServerSettings("sglang-cpu:0.5.20", "0.5.20", 1, 0), print)


def test_a_server_that_is_not_ours_is_never_started(free_port):
    side = attached(f"http://127.0.0.1:{free_port}", "0.5.23", tiny())
    with pytest.raises(HarnessError, match="is not ours to start"):
        side.perform(WORDS.sequence([0]))
    side.close()
    assert Attached(f"127.0.0.1:{free_port}", "0.5.23", tiny()).alive is False


@pytest.fixture
def free_port():
    import socket

    with contextlib.closing(socket.socket()) as held:  # bound but not listening: every connection is refused
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
