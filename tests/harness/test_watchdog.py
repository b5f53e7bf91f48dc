"""A client that does not come back, in real time: a finding that says where it waits, within seconds that are given.

The seconds that the tests give are many; the clients themselves say when they are over (`soon`).
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from harness import watchdog
from harness.errors import HarnessError
from harness.watchdog import MOST_LOST, STRIKES, Hung, watched
from tests.harness.test_cli import RUN, cli  # noqa: F401 - a fixture
from tests.harness.toys import ToySut, soon, without_progress

ROOT = Path(__file__).parents[2]
HERE = "tests/harness/test_watchdog.py"


class Spins(ToySut):
    def refit(self, deadline_s):
        soon()
        while True:
            pass


class Sleeps(ToySut):
    def refit(self, deadline_s):
        time.sleep(soon())


class Locked(ToySut):
    def refit(self, deadline_s):
        threading.Event().wait(soon())


class Reads(ToySut):
    def refit(self, deadline_s):
        read, _ = os.pipe()
        os.read(read, bool(soon()))


class Polls(ToySut):
    """Calls for ever: the lane's clock goes on, far beyond the deadline."""

    def refit(self, deadline_s):
        over = self.fleet.clock.now() + deadline_s
        while self.fleet.clock.now() <= over:
            self.fleet.endpoints[0].request("flush_cache", timeout_s=deadline_s)
        soon()
        while True:
            self.fleet.endpoints[0].request("flush_cache", timeout_s=deadline_s)


class HungSetup(ToySut):
    def setup(self, fleet):
        time.sleep(soon())


class HungFactory(ToySut):
    def __init__(self):
        time.sleep(soon())


class Cleans(ToySut):
    """Hangs, and leaves its guards in order."""

    def refit(self, deadline_s):
        try:
            time.sleep(soon())
        finally:
            self.fleet.endpoints[0].request("continue_generation", timeout_s=deadline_s)


def hung(sut, *more):
    options = ("--lane", "toy", "--sut", f"{__name__}:{sut.__name__}", "--exploration", "off", "-n", "1")
    return ("run", *options, "--hang-timeout", "77", *more)


@pytest.mark.parametrize(
    ("sut", "line"),
    [
        (Spins, "pass"),
        (Sleeps, "time.sleep(soon())"),
        (Locked, "threading.Event().wait(soon())"),
        (Reads, "os.read(read, bool(soon()))"),
    ],
)
def test_a_client_that_hangs_is_violated_and_its_line_is_named(cli, tmp_path, sut, line):  # noqa: F811
    report = tmp_path / "r.json"
    code, out, _ = cli(*hung(sut, "--rule", "TOY-2", "--report", str(report)))
    assert code == 1
    first = out.splitlines()
    assert "✗ EXPLORE-8 MUST  (every sglang)  No refit outlives its deadline, and none hangs for ever." in first
    actual = next(text for text in first if text.startswith("  actual"))
    assert "no return after 77 s of real time; it waits in " in actual
    assert HERE in actual
    assert actual.endswith((f" in refit: {line}", " in refit: while True"))
    found = {r["rule"]: r for r in json.loads(report.read_text())["results"]}
    assert found["TOY-2"]["status"] == "inconclusive"
    assert found["TOY-2"]["actual"].startswith("the client hung in ")


def test_its_replay_line_shows_it_again(cli):  # noqa: F811
    _, out, _ = cli(*hung(Sleeps, "--rule", "TOY-2"))
    replay = next(line.split()[2:] for line in out.splitlines() if line.startswith("  replay"))
    assert "--hang-timeout" in replay
    assert cli(*replay, "-n", "1")[0] == 1


def test_a_client_that_calls_for_ever_is_found_by_its_deadline(cli):  # noqa: F811
    code, out, _ = cli(*hung(Polls, "--rule", "TOY-2"))
    assert code == 1
    assert "✗ EXPLORE-8" in out
    assert re.search(r"it waits in tests/harness/(test_watchdog|toys)\.py:\d+ in ", out)  # or its toy engine


@pytest.mark.parametrize(("sut", "doing"), [(HungSetup, "setup()"), (HungFactory, "its factory")])
def test_hanging_outside_a_refit_is_a_harness_error_that_names_it(cli, sut, doing):  # noqa: F811
    code, out, _ = cli(*hung(sut, "--rule", "TOY-2"))
    assert code == 3
    assert f"system under test '{__name__}:{sut.__name__}': {doing}: no return after 77 s" in out


def test_what_it_still_calls_on_its_way_out_is_in_the_history(cli, tmp_path):  # noqa: F811
    code, _, _ = cli(*hung(Cleans, "--rule", "TOY-2", "--histories", str(tmp_path)))
    assert code == 1
    from harness.history_files import read_history

    history = read_history(next(tmp_path.iterdir()))
    (refit,) = history.refits()
    assert (refit.ok, refit.error_type) == (False, "Hung")
    assert [c.op for c in history.during(refit).calls()] == ["continue_generation"]


def test_a_client_that_always_hangs_costs_a_few_times_and_not_all(cli, tmp_path):  # noqa: F811
    report = tmp_path / "r.json"
    code, _, _ = cli(*hung(Polls, "--engine", "all", "--exploration", "full", "--report", str(report)))
    assert code == 1
    units = json.loads(report.read_text())["units"]
    assert sum(bool(unit["hung"]) for unit in units) <= 3
    assert len(units) > 3


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "1e9"])
def test_a_time_that_is_none_is_refused(cli, seconds):  # noqa: F811
    code, out, err = cli(*RUN, "--hang-timeout", seconds)
    assert (code, out) == (4, "")
    assert err.startswith("refitcheck: --hang-timeout ")


def test_a_timer_that_was_set_before_goes_on():
    before = signal.getitimer(signal.ITIMER_REAL)[0]  # pytest-timeout's own
    with watched(1e6, "a test"):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 9e5
    after = signal.getitimer(signal.ITIMER_REAL)[0]
    assert bool(before) == bool(after)
    assert after <= before
    with watched(0, "a test"):
        assert signal.getitimer(signal.ITIMER_REAL)[0] <= after


def test_it_is_interrupted_once_and_what_interrupts_is_no_exception_that_a_retry_would_catch():
    def retries():
        while True:
            try:
                time.sleep(soon())
            except Exception:
                continue

    with pytest.raises(Hung) as told, watched(77, "a test"):
        retries()
    assert told.value.theirs
    assert not isinstance(told.value, Exception | HarnessError)


class Dies:
    """Something that ends the strike where the interpreter calls by itself."""

    def __init__(self, act):
        self.act = act

    def __del__(self):
        self.act()


def in_a_finalizer(act):
    Dies(act)


def in_a_weak_callback(act):
    kept = threading.Event()
    reference = weakref.ref(kept, lambda _: act())
    del kept
    assert reference() is None


def in_the_garbage_collector(act):
    def callback(phase, info):
        if phase == "start":
            act()

    gc.callbacks.append(callback)
    try:
        gc.collect(0)
    finally:
        gc.callbacks.remove(callback)


def struck():
    """The watch's time is up in this line."""
    signal.raise_signal(signal.SIGALRM)
    for _ in range(100):
        pass


def cleans_up():
    try:
        struck()
    finally:
        raise RuntimeError("of the client")


@pytest.mark.parametrize("place", [in_a_finalizer, in_a_weak_callback, in_the_garbage_collector])
@pytest.mark.parametrize(("act", "seen"), [(struck, 0), (cleans_up, 1)])
def test_where_the_interpreter_swallows_it_it_comes_again_at_once_and_nobody_is_told(monkeypatch, place, act, seen):
    noise = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: noise.append(str(told.exc_value)))
    monkeypatch.setattr(watchdog, "SOON_S", 1e6)
    hook, left = sys.unraisablehook, []

    def client():
        for _ in range(STRIKES + 1):  # more than it takes to end the process
            place(act)
            left.append(signal.getitimer(signal.ITIMER_REAL)[0])
        struck()

    with pytest.raises(Hung), watched(77, "a test"):
        client()
    assert len(left) == STRIKES + 1
    assert min(left) > 9e5
    assert sys.unraisablehook is hook
    assert set(noise) == ({"of the client"} if seen else set())


def test_what_hangs_where_everything_is_swallowed_ends_the_process_all_the_same(monkeypatch):
    ends = []
    monkeypatch.setattr(watchdog, "_end", ends.append)
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)
    monkeypatch.setattr(watchdog, "SOON_S", 1e6)

    def client():
        for _ in range(MOST_LOST + STRIKES):
            in_a_finalizer(struck)
        struck()

    with pytest.raises(Hung), watched(77, "a test"):
        client()
    assert len(ends) == 2
    assert ends[0].startswith("a test does not come back and catches what interrupts it: tests/harness/test_watchdog")


def test_what_else_is_swallowed_meanwhile_is_told_as_ever(monkeypatch):
    noise = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: noise.append(str(told.exc_value)))
    with watched(77, "a test"):
        in_a_finalizer(lambda: 1 / 0)
    assert noise == ["division by zero"]


def test_a_module_that_hangs_when_it_is_imported_is_one_line(cli, tmp_path, monkeypatch):  # noqa: F811
    (tmp_path / "slow_trainer.py").write_text("import time; from tests.harness.toys import soon\ntime.sleep(soon())\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    code, out, err = cli("run", "--lane", "toy", "--sut", "slow_trainer:Sut", "--hang-timeout", "77")
    assert (code, out) == (4, "")
    assert err.startswith("refitcheck: system under test 'slow_trainer:Sut': importing it: no return after 77 s")
    assert err.endswith("slow_trainer.py:2 in <module>: time.sleep(soon())\n")


def run_outside(sut, *options):
    command = [sys.executable, "-m", "harness.cli", "run", "--rule", "SESS-1", "--exploration", "off", *options]
    command += ["--sut", sut, "--scenario", "refit/envelope/two-refits"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    done.stderr = without_progress(done.stderr)
    return done


def test_a_client_that_swallows_every_interruption_ends_the_process_with_a_word():
    done = run_outside("tests.harness.unpleasant:Stubborn", "-n", "1")
    assert done.returncode == 3
    assert "refit 1 does not come back and catches what interrupts it: tests/harness/unpleasant.py:" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("sut", ["HangsInC", "TakesTheSignal", "BlocksTheSignal"])
def test_a_client_that_no_signal_reaches_is_ended_from_outside_and_named(sut):
    name = f"tests.harness.unpleasant:{sut}"
    done = run_outside(name, "-n", "1")
    assert done.returncode == 3
    where = f"scenario refit/envelope/two-refits: system under test '{name}': refit 1"
    assert f"  error    {where} does not come back, and nothing interrupts it\n" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_thread_that_a_client_leaves_behind_does_not_keep_the_process(workers):
    options = ("-n", workers, "--scenario", "refit/faults/not-idle-yet")
    done = run_outside("tests.harness.unpleasant:Lingers", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert "held 1" in done.stdout
