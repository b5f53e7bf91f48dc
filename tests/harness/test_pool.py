"""Worker processes: what they say, how they end, and that nothing of them has a name that outlives a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness import pool
from harness.errors import HarnessError, UsageError
from harness.settings import Settings
from tests.harness.toys import without_progress

ROOT = Path(__file__).parents[2]


def refuse(what):
    raise UsageError(what)


class Unportable(Exception):
    def __reduce__(self):
        raise TypeError("stays here")


def break_(what):
    raise Unportable(what)


def end(code):
    os._exit(code)


def hang_up(seconds):
    os.closerange(3, 256)
    time.sleep(seconds)


@pytest.fixture
def crew(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    made = pool.Crew(Settings(), 2)
    yield made
    made.close()
    assert made._workers == []


def test_what_a_call_gives_or_raises_comes_back_and_the_worker_goes_on(crew):
    assert sorted(crew._results([(len, "abc"), (len, "ab"), (len, "a")])) == [1, 2, 3]
    pids = [worker.process.pid for worker in crew._workers]
    with pytest.raises(UsageError, match="no such thing"):
        list(crew._results([(refuse, "no such thing")]))
    with pytest.raises(HarnessError, match="Unportable: odd"):
        list(crew._results([(break_, "odd")]))
    assert list(crew._results([(len, "abcd")])) == [4]
    assert [worker.process.pid for worker in crew._workers] == pids


def test_a_worker_that_ends_is_told_with_its_exit_code_and_no_other_is_waited_for(crew):
    with pytest.raises(HarnessError, match="a worker process ended with exit code 7"):
        list(crew._results([(end, 7)]))


def test_a_worker_that_hangs_up_is_not_waited_for_and_the_next_call_has_a_fresh_one(crew, monkeypatch):
    monkeypatch.setattr(pool, "LINGER_S", 0.01)
    with pytest.raises(HarnessError, match=r"^a worker process closed its pipe$"):
        list(crew._results([(hang_up, 1e6)]))
    assert crew._workers == []
    assert list(crew._results([(len, "abc")])) == [3]


def test_a_signal_is_heard_after_what_is_under_way_whichever_thread_takes_it(crew):
    def kill():
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    results = crew._results([(len, "a"), (len, "ab"), (len, "abc")])
    next(results)
    thread = threading.Thread(target=kill)
    thread.start()
    thread.join()
    with pytest.raises(KeyboardInterrupt):
        list(results)
    assert signal.getsignal(signal.SIGTERM) == before


def test_no_semaphore_is_needed_which_a_killed_run_would_leave_behind():
    code = (
        "import _multiprocessing, sys; del _multiprocessing.SemLock; from harness.cli import main\n"
        "main(['run', '-n', '2', '--rule', 'SESS-1', '--rule', 'PAUSE-1', '--exploration', 'off'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    assert "held 2" in done.stdout
