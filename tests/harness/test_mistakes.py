"""What a user gets wrong, or interrupts: one clear line, its exit code, and nothing left running."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.harness.test_cli import RUN, cli  # noqa: F401
from tests.harness.toys import without_progress

ROOT = Path(__file__).parents[2]
FULL = Path("/dev/full")


def toy(name):
    return ("run", "--lane", "toy", "--sut", f"tests.harness.toys:{name}", "--exploration", "off", "-n", "1")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("SetupSut", "setup() raised ValueError: no trainer at this address"),
        ("CloseSut", "close() raised OSError: still busy"),
    ],
)
def test_an_adapter_that_raises_outside_a_refit_is_a_harness_error_that_names_it(cli, tmp_path, name, told):  # noqa: F811 - the fixture
    code, out, _ = cli(*toy(name), "--report", str(tmp_path / "r.json"))
    assert code == 3
    cause = f"system under test 'tests.harness.toys:{name}': {told}"
    assert f"  error    scenario toy/refits: {cause}\n" in out
    assert f"harness error, {cause}: TOY-2" in " ".join(out.split())
    found = {r["rule"]: r["status"] for r in json.loads((tmp_path / "r.json").read_text())["results"]}
    assert found == {"TOY-1": "held", "TOY-2": "error"}


def test_what_breaks_every_scenario_is_told_once_and_the_summary_names_the_rules(cli):  # noqa: F811 - the fixture
    code, out, _ = cli(*toy("SetupSut"), "--exploration", "full", "--rule", "TOY-2", "--rule", "EXPLORE")
    assert code == 3
    assert out.count("  error    ") == 1
    assert "harness error, " in out
    assert "TOY-2 EXPLORE-1 EXPLORE-2" in " ".join(out.split())


@pytest.mark.parametrize("option", ["--report", "--junitxml", "--summary", "--histories"])
def test_what_cannot_be_written_is_told_before_anything_runs(cli, tmp_path, option):  # noqa: F811 - the fixture
    path = tmp_path / ("x" * 300)
    code, out, err = cli(*RUN, option, str(path))
    assert (code, out) == (4, "")
    assert err == f"refitcheck: {path}: File name too long\n"


def test_a_file_that_is_there_already_keeps_its_content_until_the_run_is_over(cli, tmp_path):  # noqa: F811 - the fixture
    path = tmp_path / "r.json"
    path.write_text("before")
    assert cli(*RUN, "--report", str(path), "--rule", "NOPE")[0] == 4
    assert path.read_text() == "before"
    assert cli(*RUN, "--report", str(path), "--summary", str(tmp_path / "no" / "s.md"))[0] == 4
    assert path.read_text() == "before"


@pytest.mark.skipif(not FULL.exists(), reason="a device that is always full is a thing of Linux")
@pytest.mark.parametrize("option", ["--report", "--junitxml", "--summary", "GITHUB_STEP_SUMMARY"])
def test_a_full_disk_costs_the_file_and_not_the_results(cli, tmp_path, monkeypatch, option):  # noqa: F811 - the fixture
    options = () if option == "GITHUB_STEP_SUMMARY" else (option, str(FULL))
    if not options:
        monkeypatch.setenv(option, str(FULL))
    more = () if option == "--report" else ("--report", str(tmp_path / "r.json"))
    assert cli(*RUN, *options, *more)[0] == 2  # inconclusive, as without a report
    code, out, err = cli(*RUN, "--rule", "TOY-1", *options, *more)
    assert code == 4
    assert "held 1" in out
    assert err == f"refitcheck: {FULL if options else '$' + option}: No space left on device\n"
    if option != "--report":
        assert json.loads((tmp_path / "r.json").read_text())["counts"]["held"] == 1


@pytest.mark.parametrize(
    ("lane", "number", "code"),
    [
        ("fake", signal.SIGINT, 130),
        ("fake", signal.SIGTERM, 130),
        ("fake", signal.SIGKILL, -9),
        ("http", signal.SIGINT, 130),
        ("http", signal.SIGKILL, -9),
    ],
)
def test_an_interrupted_run_leaves_nothing_running(tmp_path, lane, number, code):
    command = [sys.executable, "-m", "harness", "run", "--lane", lane, "--engine", "all", "-n", "2"]
    files = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, **files},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job's children ignore it
    ) as process:
        family = children(process, 3 if lane == "fake" else 2)
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
    assert process.returncode == code
    _, left = psutil.wait_procs(family, timeout=300)
    assert left == []
    if number != signal.SIGKILL:
        assert (out, without_progress(err)) == ("", "refitcheck: interrupted\n")
        assert list(tmp_path.iterdir()) == []


def test_a_background_job_that_ignores_interruptions_goes_on(tmp_path):
    command = [sys.executable, "-m", "harness.cli", "run", "--exploration", "off", "--rule", "SESS-1", "-n", "2"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as process:
        while process.poll() is None:  # whenever it comes
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        out, _ = process.communicate()
    assert (process.returncode, "held 1 " in out) == (0, True)


def children(process, several):
    """Its processes, once there are as many."""
    main = psutil.Process(process.pid)
    while process.poll() is None:
        found = main.children(recursive=True)
        if len(found) >= several:
            return found
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(process.communicate())


@pytest.mark.parametrize("option", ["--report", "--junitxml", "--summary", "--histories"])
def test_a_path_without_a_name_is_not_the_working_folder(cli, tmp_path, monkeypatch, option):  # noqa: F811 - the fixture
    monkeypatch.chdir(tmp_path)
    for arguments in ((*RUN, option, ""), ("model", "")):
        code, out, err = cli(*arguments)
        assert (code, out) == (4, "")
        assert err.endswith("it is empty; . is the working folder\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "what it writes: No space left on device"),
        (OSError(errno.EROFS, "Read-only file system", "mx/matrix.json"), "mx/matrix.json: Read-only file system"),
    ],
)
def test_a_command_that_finds_no_room_is_one_line(cli, monkeypatch, error, told):  # noqa: F811 - the fixture
    def full():
        raise error

    monkeypatch.setattr("harness.doctor.diagnose", full)
    assert cli("doctor") == (4, "", f"refitcheck: {told}\n")
