"""The session in a child: whatever the code that it runs does, the exit code is the session's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from harness.errors import HarnessError, RefitcheckError, UsageError
from harness.mutate import guard
from tests.harness.mutate.conftest import mutate


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_code_is_what_the_work_returned(code):
    assert guard.guarded(lambda: code) == code


def test_no_exit_after_the_last_word_changes_it():
    def work():
        import atexit

        atexit.register(os._exit, 0)
        sys.exit = lambda code=0: None
        return 1

    assert guard.guarded(work) == 1


@pytest.mark.parametrize("limit", [0.0, 60.0], ids=["later", "import"])
@pytest.mark.parametrize(("end", "how"), [(lambda: os._exit(0), "exit 0"), (lambda: os.kill(0, 9), "SIGKILL")])
def test_an_end_without_a_word_is_an_error_that_says_when(limit, end, how):
    def work():
        guard.stage("target x: its import", limit)
        end()

    said = f"target x: its import ended the process ({how})" if limit else f"ended by the code that it ran ({how})"
    with pytest.raises(UsageError if limit else HarnessError) as caught:
        guard.guarded(work)
    assert said in str(caught.value)


def test_an_import_that_hangs_has_a_limit():
    def work():
        guard.stage("target x: its import", 0.2)
        signal.pause()

    with pytest.raises(UsageError, match=r"target x: its import hangs: no end within 0\.2 s"):
        guard.guarded(work)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("a line"), 4, "a line"),
        (HarnessError("a line"), 3, "a line"),
        (SystemExit(0), 4, "the code under test ended the session: SystemExit: 0"),
        (ZeroDivisionError("nought"), 3, "harness error: ZeroDivisionError: nought"),
    ],
)
def test_errors_come_through_with_their_code_and_line(error, code, said):
    def work():
        raise error

    with pytest.raises(RefitcheckError) as caught:
        guard.guarded(work)
    assert (caught.value.exit_code, str(caught.value).startswith(said)) == (code, True)


def test_an_interrupt_comes_through():
    def work():
        os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()

    with pytest.raises(KeyboardInterrupt):
        guard.guarded(work)


EARLY = """
import os, signal, threading, time
from harness.mutate import guard

threading.Thread(target=time.sleep, args=(100,), daemon=True).start()  # it may be given any signal too
read, write = os.pipe()
fork = os.fork

def forked():
    pid = fork()
    if pid:
        os.read(read, 1)  # sent already
    return pid

def work():
    os.kill(os.getppid(), signal.SIGTERM)
    os.write(write, b".")
    signal.pause()

os.fork = forked
try:
    guard.guarded(work)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_before_the_fork_has_returned_is_not_lost():
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to a process that asks for them")
def test_what_the_work_leaves_running_ends_with_it_even_in_a_session_of_its_own(tmp_path):
    def work():
        with (tmp_path / "pid").open("w") as file:
            left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
            file.write(str(left.pid))
        return 0

    assert guard.guarded(work) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


CASES = {
    "target-sys-exit": ("import sys\nsys.exit(0)\n", "", "target client does not import: SystemExit: 0"),
    "target-os-exit": ("import os\nos._exit(0)\n", "", "target client: its import ended the process (exit 0)"),
    "test-sys-exit": ("", "import sys\nsys.exit(0)\n", "pytest collected nothing from test_client.py: "),
    "test-os-exit": ("", "import posix\nposix._exit(0)\n", "the import of what judges ended the process (exit 0)"),
}


@pytest.mark.parametrize("case", CASES)
def test_code_that_exits_while_it_is_imported_is_one_clear_line_and_exit_code_4(tmp_path, case):
    target, test, said = CASES[case]
    (tmp_path / "client.py").write_text(target + "def f():\n    return 1\n")
    (tmp_path / "test_client.py").write_text(test + "import client\ndef test_f():\n    assert client.f() == 1\n")
    ran = mutate(tmp_path, "--target", "client", "--tests", "test_client.py")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (4, "", 1), ran.err
    assert ran.err.startswith(f"refitcheck: {said}")


def test_a_closed_standard_error_changes_nothing(tmp_path):
    (tmp_path / "client.py").write_text("def f():\n    return 1\n")
    (tmp_path / "test_client.py").write_text("import client\ndef test_f():\n    assert client.f() == 1\n")
    line = 'exec "$0" -m harness.cli mutate --target client --tests test_client.py --no-rerun --no-cache 2>&-'
    done = subprocess.run(["sh", "-c", line, sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "score 100.0 %" in done.stdout


def test_a_target_is_read_in_its_own_encoding(tmp_path):
    (tmp_path / "client.py").write_bytes(b"# -*- coding: latin-1 -*-\ndef f():\n    return '\xfc'\n")
    (tmp_path / "test_client.py").write_text("import client\ndef test_f():\n    assert client.f() == chr(252)\n")
    ran = mutate(tmp_path, "--target", "client", "--tests", "test_client.py", "--no-rerun")
    assert ran.code == 0, ran.err
    assert "score 100.0 %" in ran.out
