"""The command `refitcheck diff`, over scripted oracles and fakes in the real side's place."""

import contextlib

import pytest
import typer
from typer.testing import CliRunner

from harness.errors import HarnessError, UsageError
from real_runs.fuzz import cli, oracle_run, records, server_run
from real_runs.fuzz.server_cells import LIVES
from real_runs.fuzz.sides import Attached, FakeSide, RealSide, attached, tiny
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

    def use(under=contextlib.nullcontext, **model):
        side = FakeSide("0.5.23", tiny(**model), under)
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


SOON = ("--against", "sglang-cpu:0.5.23", "--steps", 40, "--seed")
"""Seeds that meet a defect early follow."""


def command(*options):
    app = typer.Typer()
    app.command()(cli.diff)
    return CliRunner().invoke(app, [*map(str, options)], standalone_mode=False)


def run_of(path):
    """The one test of a file."""
    scope = {}
    exec(path.read_text(), scope)
    (test,) = [value for name, value in scope.items() if name.startswith("test_")]
    assert path.stem == test.__name__
    return test


@pytest.mark.parametrize(
    ("name", "seed", "model", "differs"),
    [
        ("begin-again", 7, {}, "begin_weight_update: status"),
        ("first-payload-for-all", 2, {"tp": 2, "model": "qwen2-tied"}, "generate: body.output_ids"),
    ],
)
def test_a_difference_from_a_server_is_told_with_both_answers_and_a_test_that_is_red_until_it_is_mended(
    tmp_path, sides, name, seed, model, differs
):
    lenient = plant(name)
    sides(lenient, **model)
    options = [word for key, value in model.items() for word in (f"--{key}", value)]
    ran = command(*SOON, seed, "--keep-test", tmp_path / "found", *options)
    assert ran.return_value == 1
    assert "✗ sglang-cpu:0.5.23 differs from fake 0.5.23" in ran.output
    assert differs in ran.output
    path = next((tmp_path / "found").iterdir())
    assert path.read_text() in ran.output
    test = run_of(path)
    with pytest.raises(AssertionError):
        test()
    with lenient():
        test()


def test_both_answers_stand_side_by_side(tmp_path, sides):
    sides(plant("begin-again"))
    said = command(*SOON, 7).output.splitlines()
    status, body, *_ = said[said.index(next(line for line in said if line.startswith("  status"))) :]
    assert status.split() == ["status", "200", "400"]
    assert body[10:70].startswith('{"success": true')
    assert body[72:].startswith('{"success": false')


def test_an_oracle_s_difference_is_written_as_a_test(tmp_path):
    said = []
    assert not oracle_run.run(
        settings(tmp_path, keep_test=tmp_path / "found"), ScriptedOracle(lie=lies_about_a_second_begin), said.append
    )
    (path,) = (tmp_path / "found").iterdir()
    assert said[-1] == str(path)
    with pytest.raises(AssertionError):
        run_of(path)()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "diff needs one of --oracle and --against"),
        (["--oracle", "--against", "x"], "diff needs one of --oracle and --against"),
        (["--oracle", "--engine", "9"], "unknown engine version '9'"),
        (["--oracle", "--engine", "miles"], "miles has no wheel: give --checkout"),
        (["--oracle", "--checkout", "/no/such/folder"], "/no/such/folder: no such folder"),
        (["--against", "http://127.0.0.1:1", "--derive", "9"], "unknown engine version '9'"),
        (["--oracle", "--derive", "9"], "unknown engine version '9'"),
        (["--against", "sglang-cpu:0.5.9"], "no pins for SGLang '0.5.9'"),
        (["--against", "nonsense"], "nonsense: not a URL with a port"),
        (["--against", "http://[::1"], "http://[::1: Invalid IPv6 URL"),
        (["--against", "http://127.0.0.1:99999"], "http://127.0.0.1:99999: Port out of range"),
        (["--against", "http://127.0.0.1:1", "--profile", "9"], "unknown engine version '9'"),
        (["--against", "http://127.0.0.1:1", "--model", "gpt2"], "unknown model 'gpt2'; known: llama, qwen2, qwen3"),
        (["--against", "http://127.0.0.1:1", "--model", "qwen2-untied"], "each with -tied too"),
    ],
)
def test_wrong_options_are_told_in_one_line(options, text):
    result = command(*options)
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


class Slow:
    """A server of ours in whose place nothing runs; `clean` says how each reset goes."""

    alive = False

    def __init__(self, *clean):
        self.clean, self.starts = list(clean), 0

    def start(self):
        self.starts += 1

    def reset(self):
        return self.clean.pop(0)


@pytest.mark.parametrize("clean", [[True], [False, True], [False, False, True]])
def test_a_fresh_server_whose_first_answers_are_late_is_reset_again(clean):
    server = Slow(*clean)
    side = RealSide(server, tiny(), {})
    side._cleaner = server
    side._clean()
    assert (server.starts, server.clean) == (1, [])


def test_a_fresh_server_that_does_not_come_clean_is_no_server():
    server = Slow(False, False, False)
    side = RealSide(server, tiny(), {})
    side._cleaner = server
    with pytest.raises(HarnessError, match="does not come clean"):
        side._clean()
