"""Ctrl-C and SIGTERM at any moment: one line and 130, also in the middle of an import and where they are swallowed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import pool
from harness.interrupts import came, raise_from_now_on
from tests.harness.test_cli import RUN, cli  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def python(*arguments, path=()):
    """rc, stdout, stderr of an interpreter that ignores no signal, whatever its parent does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=500,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def struck_by(folder, name, number):
    """A module of that name whose import is met by a signal, and which swallows what that raises."""
    (folder / f"{name}.py").write_text(
        f"import os, signal\ntry: os.kill(os.getpid(), {int(number)}); signal.pause()\nexcept BaseException: pass\n"
    )
    return folder


@BOTH
@pytest.mark.parametrize("command", [["list"], ["run"], ["serve"], ["no-such-command"]])
def test_while_the_command_line_is_imported(tmp_path, command, number):
    path = [struck_by(tmp_path, "typer", number)]
    assert python("-m", "harness", *command, path=path) == (130, "", "refitcheck: interrupted\n")


@BOTH
def test_while_a_server_comes_up(tmp_path, number):
    model = ROOT / "tests" / "no-such-model"
    path = [struck_by(tmp_path, "safetensors", number), struck_by(tmp_path, "ml_dtypes", number)]
    found = python("-m", "harness", "serve", "--model-path", str(model), path=path)
    assert found == (130, "", "refitcheck: interrupted\n")


@BOTH
def test_an_exception_that_something_swallowed_is_not_forgotten(number):
    code = (
        "import os, signal; from harness import interrupts as i; i.end_at_once(); i.raise_from_now_on()\n"
        f"try: os.kill(os.getpid(), {int(number)}); signal.pause()\n"
        "except BaseException as e: print(type(e).__name__, i.came())"
    )
    assert python("-c", code) == (0, "KeyboardInterrupt True\n", "")


def test_a_run_that_was_interrupted_unheard_ends_after_the_scenario(cli, monkeypatch):  # noqa: F811
    monkeypatch.setattr(pool, "came", lambda: True)
    assert cli(*RUN)[::2] == (130, "refitcheck: interrupted\n")


def test_what_a_background_job_ignores_stays_ignored():
    code = (
        "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from harness import interrupts as i\n"
        "i.end_at_once(); os.kill(os.getpid(), signal.SIGINT); print('goes on')"
    )
    assert python("-c", code) == (0, "goes on\n", "")


def test_where_nobody_asked_for_it_nothing_is_changed():
    before = signal.getsignal(signal.SIGTERM)
    raise_from_now_on()
    assert signal.getsignal(signal.SIGTERM) == before
    assert not came()


def test_while_what_hears_them_is_imported():
    code = (
        "import builtins, os; real = builtins.__import__\n"
        "def strike(name, *rest):\n"
        "    if name == 'harness.interrupts': os.kill(os.getpid(), 2); [None for _ in range(10)]\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = strike\n"
        "import harness.entry"
    )
    assert python("-c", code) == (130, "", "refitcheck: interrupted\n")
