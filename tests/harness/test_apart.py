"""A client may end, patch or leave its process as it likes: the one that decides the exit code never imports it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.toys import without_progress

ROOT = Path(__file__).parents[2]
NARROW = ("--rule", "SESS-1", "--exploration", "off")
VIOLATED, HARNESS_ERROR, USAGE = 1, 3, 4


def command(*arguments, cwd=ROOT):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(cwd)))}
    for name in ("GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    line = [sys.executable, "-m", *arguments, *NARROW]
    done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=500, check=False)
    return done.returncode, done.stdout, without_progress(done.stderr)


def run(sut, *options, cwd=ROOT):
    scenario = ("--scenario", "refit/envelope/two-refits")
    return command("harness.cli", "run", "-n", "1", "--sut", sut, *scenario, *options, cwd=cwd)


@pytest.fixture
def module(tmp_path):
    """A function: write a module with this line; returns the folder that it lies in."""

    def write(line):
        (tmp_path / "ending.py").write_text(f"import os, posix, sys\n{line}\n")
        return tmp_path

    return write


ENDS = [
    ("os._exit(0)", USAGE, "importing 'ending:A': the system under test called os._exit(0)"),
    ("sys.exit(0)", USAGE, "system under test 'ending:A': importing ending raised SystemExit: 0"),
    ("posix._exit(0)", USAGE, "a worker process ended with exit code 0 in system under test 'ending:A'"),
    ("raise KeyboardInterrupt", USAGE, "importing 'ending:A': the system under test raised KeyboardInterrupt"),
    ("raise BaseException('x')", USAGE, "importing ending raised BaseException: x"),
]


@pytest.mark.parametrize(("line", "code", "told"), ENDS)
def test_a_module_that_ends_the_process_when_it_is_imported_is_one_line(module, line, code, told):
    got, out, err = run("ending:A", cwd=module(line))
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert told in err


@pytest.mark.parametrize(("line", "code", "told"), ENDS)
def test_so_it_is_for_pytest(module, line, code, told):
    del code  # of pytest, which knows one code for all of them
    got, out, err = command(
        "pytest", "-p", "no:cacheprovider", "--pyargs", "conformance", "--sut", "ending:A", cwd=module(line)
    )
    assert got == 4
    assert told in out + err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("name", ["ExitsLaterInAThread", "PatchesExit", "ExitsAtExit"])
def test_a_client_that_meddles_with_the_end_is_violated_all_the_same(name):
    code, out, _ = run(f"tests.harness.unpleasant:{name}")
    assert code == VIOLATED
    assert "✗ SESS-1 MUST" in out


def where(name):
    return f"system under test '{name}': refit 1"


def test_a_client_that_ends_its_process_unseen_is_named_with_its_scenario():
    name = "tests.harness.unpleasant:ExitsBehindOurBack"
    code, out, err = run(name)
    ended = f"scenario refit/envelope/two-refits: a worker process ended with exit code 0 in {where(name)}"
    assert code == HARNESS_ERROR
    assert err == f"refitcheck: {ended}; it runs again in another one\n"
    assert f"  error    {ended}, and so did the next one\n" in out


def test_a_client_that_closes_the_streams_is_held():
    code, out, err = run("tests.harness.unpleasant:ClosesTheStreams")
    assert (code, err) == (0, "")
    assert "held 1" in out


def test_files_lie_where_they_were_asked_for_wherever_the_client_goes(tmp_path):
    code, _, err = run("tests.harness.unpleasant:GoesElsewhere", "--report", "r.json", "--histories", "h", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert (tmp_path / "r.json").is_file()
    assert len(list((tmp_path / "h").iterdir())) == 1


def test_a_worker_that_ends_is_seen_though_a_process_that_the_client_forked_lives(tmp_path):
    """It holds the worker's end of the pipe, so that nothing says that the pipe has ended."""
    child, said = tmp_path / "child", tmp_path / "said"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "REFITCHECK_TEST_CHILD": str(child)}
    line = [sys.executable, "-m", "harness.cli", "run", "-n", "1", "--sut", "tests.harness.unpleasant:DiesWithAChild"]
    line += ["--scenario", "refit/envelope/two-refits", *NARROW]
    try:
        with said.open("w") as file:  # and no pipe of ours
            done = subprocess.run(line, cwd=ROOT, env=environment, stdout=file, stderr=file, timeout=50, check=False)
    finally:
        if child.exists() and child.read_text():
            os.kill(int(child.read_text()), signal.SIGKILL)
    assert done.returncode == HARNESS_ERROR
    assert "scenario refit/envelope/two-refits: a worker process ended with exit code -9 in system" in said.read_text()


def test_what_a_client_writes_into_the_pipe_is_one_line_that_names_it():
    name = "tests.harness.unpleasant:WritesIntoThePipe"
    code, out, err = run(name)
    said = r"Garbled: b'\x00\x00\x00\x04oops'"
    assert (code, err) == (HARNESS_ERROR, "")
    told = f"scenario refit/envelope/two-refits: a worker process said what is no answer, in {where(name)}: {said}"
    assert f"  error    {told}\n" in out


def test_half_a_word_of_a_client_holds_nobody_up():
    code, out, err = run("tests.harness.unpleasant:SaysHalfAWord")
    assert (code, err) == (HARNESS_ERROR, "")
    assert "refit 1 does not come back, and nothing interrupts it\n" in out


def test_a_fork_that_comes_back_from_a_refit_answers_nothing():
    code, out, err = run("tests.harness.unpleasant:ComesBackTwice")
    assert (code, err) == (0, "")
    assert "held 1" in out
