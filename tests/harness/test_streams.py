"""Where the words go may be full, closed or of a small alphabet: a verdict stays a verdict."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.streams import complain
from harness.words import quoted, visible
from tests.harness.toys import without_progress

ROOT = Path(__file__).parents[2]
VIOLATED = "run --rule SESS-1 --plant no-session --exploration off -n 1"
HELD = "run --rule SESS-1 --exploration off -n 1"
FULL = "/dev/full"
linux = pytest.mark.skipif(not Path(FULL).exists(), reason="a device that is always full is a thing of Linux")


def shell(options, redirect="", **more):
    """rc, stdout, stderr of the command under a POSIX shell."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    environment.pop("GITHUB_STEP_SUMMARY", None)
    line = f'"{sys.executable}" -m harness.cli {options} {redirect}'
    done = subprocess.run(["sh", "-c", line], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout, without_progress(done.stderr)


@linux
def test_violated_is_the_exit_code_where_the_report_cannot_be_written():
    code, out, err = shell(f"{VIOLATED} --report {FULL}")
    assert code == 1
    assert "✗ SESS-1 MUST" in out
    assert err == f"refitcheck: {FULL}: No space left on device\n"


@linux
@pytest.mark.parametrize(("options", "code"), [(VIOLATED, 1), (HELD, 4), ("list", 4), ("run --help", 4)])
def test_a_full_standard_output_is_one_line_and_hides_no_verdict(options, code):
    assert shell(options, f">{FULL}") == (code, "", "refitcheck: standard output: No space left on device\n")


@pytest.mark.parametrize(
    ("options", "redirect", "code"),
    [
        (VIOLATED, ">&-", 1),
        (VIOLATED, ">&- 2>&- <&-", 1),
        (HELD, ">&-", 0),
    ],
)
def test_a_closed_standard_output_is_no_error(options, redirect, code):
    assert shell(options, redirect)[0] == code


@pytest.mark.parametrize(("options", "code"), [("list", 0), ("run --help", 0), (VIOLATED, 1)])
def test_a_reader_that_goes_away_is_silence_and_changes_no_exit_code(options, code):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "harness.cli", *options.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, timeout=500)
    os.close(write)
    assert (done.returncode, without_progress(done.stderr.decode())) == (code, "")


def test_an_alphabet_without_our_signs_gets_plain_ones():
    ascii_ = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    code, out, err = shell(VIOLATED, **ascii_)
    assert (code, err) == (1, "")
    assert "x SESS-1 MUST" in out
    assert out.isascii()


def test_optimised_python_knows_the_rules_all_the_same():
    code, out, _ = shell(VIOLATED, PYTHONOPTIMIZE="2")
    assert code == 1
    assert "✗ SESS-1 MUST" in out


def test_what_steers_a_terminal_is_shown_as_text(capsys):
    complain("one\x1b[2J\u202etwo\ud800\nthree")
    assert capsys.readouterr().err == "refitcheck: one\\x1b[2J\\u202etwo\\ud800\nrefitcheck: three\n"
    assert visible("a\tb\nc") == "a\tb\nc"
    assert quoted("x\x00" * 1000, 10) == "x\\x00x\\x00…"


def test_nobody_to_complain_to_is_no_error(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        complain("lost")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)
    assert threading.active_count()
