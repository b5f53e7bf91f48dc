from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from harness.mutate.budget import Budget
from harness.mutate.jobs import Job, Step
from harness.mutate.mutant import PatternGoneError
from harness.mutate.pool import Pool
from tests.harness.mutate.samples import Says, live


def run(*checks, apply=lambda: None, breaks=(), declared=0, everything=False, workers=1, cpu=0.0, seconds=0.0):
    budget = Budget()
    budget.start()
    steps = tuple(Step(i, 0, cpu, seconds) for i in range(len(checks)))
    job = Job("m", apply, steps, frozenset(breaks), declared, everything)
    [(_, report)] = list(Pool(checks, budget, workers).run([job]))
    budget.stop()
    return report


def passes():
    return []


def finds(*found):
    return lambda: list(found)


def raises(error):
    def check():
        raise error

    return check


def test_nothing_noticed_is_survived_and_all_checks_ran():
    report = run(Says("a", passes), Says("b", passes))
    assert (report.ending, report.ran) == ("survived", 2)


def test_the_first_finding_kills_and_later_checks_do_not_run():
    report = run(Says("a", passes), Says("b", finds(("R-1", "said so"))), Says("c", passes))
    assert (report.ending, report.check, report.rule, report.text, report.ran) == ("killed", 1, "R-1", "said so", 2)


def test_a_declared_rule_kills_though_another_spoke_first():
    checks = [Says("a", finds(("R-2", "x"))), Says("b", finds(("R-2", "x"), ("R-1", "y")))]
    report = run(*checks, breaks=["R-1"], declared=2)
    assert (report.ending, report.rule, report.check) == ("killed", "R-1", 1)


def test_only_another_rule_noticing_is_misattributed_after_all_declared_checks():
    checks = [Says("a", finds(("R-2", "x"))), Says("b", passes), Says("c", finds(("R-1", "too late")))]
    report = run(*checks, breaks=["R-1"], declared=2)
    assert (report.ending, report.rule, report.ran) == ("misattributed", "R-2", 2)


def test_everything_runs_all_checks_and_keeps_all_that_was_found():
    checks = [Says("a", finds(("R-1", "x"))), Says("b", finds(("R-2", "y")))]
    report = run(*checks, breaks=["R-1"], declared=1, everything=True)
    assert (report.ending, report.rule, report.found) == ("killed", "R-1", [(0, "R-1"), (1, "R-2")])


def test_a_check_that_falls_over_is_a_crash_shown_apart():
    report = run(Says("a", raises(OSError("disk"))), breaks=["R-1"], declared=1)
    assert (report.ending, report.text) == ("crash", "OSError: disk")


def test_a_mutant_that_cannot_be_made_is_an_error_not_a_kill():
    report = run(Says("a", passes), apply=raises(PatternGoneError("m:f: gone")))
    assert (report.ending, report.text, report.ran) == ("error", "m:f: gone", 0)


def test_an_endless_loop_in_a_target_ends_by_the_step_budget(tmp_path, monkeypatch):
    module, program = live(tmp_path, "def spin():\n    while True:\n        pass\n", monkeypatch)
    pool = Pool([Says("a", module.spin)], program.budget, 1)
    started = time.process_time()
    [(_, report)] = list(pool.run([Job("m", lambda: None, (Step(0, 10, 0.0, 0.0),))]))
    program.budget.stop()
    assert (report.ending, report.text) == (
        "timeout",
        "step budget spent: an endless loop, or nearly one",
    )
    assert time.process_time() - started < 60


def spin():
    while True:
        pass


def test_an_endless_loop_elsewhere_ends_by_its_cpu_limit(monkeypatch):
    monkeypatch.setattr("harness.mutate.jobs.CPU_MINIMUM", 0.2)
    report = run(Says("a", passes), Says("b", spin))
    assert (report.ending, report.check, report.ran) == ("timeout", 1, 2)
    assert "SIGPROF" in report.text


def test_a_child_that_waits_for_ever_is_ended_when_all_its_threads_sleep(monkeypatch):
    monkeypatch.setattr("harness.mutate.pool.IDLE_MINIMUM_S", 0.1)
    monkeypatch.setattr("harness.mutate.pool.IDLE_POLL_S", 0.05)
    report = run(Says("a", lambda: threading.Event().wait()))
    assert (report.ending, report.check) == ("timeout", 0)
    assert "SIGKILL" in report.text


def test_a_child_that_ends_its_process_is_a_crash():
    report = run(Says("a", passes), Says("b", lambda: os._exit(7)))
    assert (report.ending, report.check) == ("crash", 1)
    assert "exit 7" in report.text


def test_many_workers_give_every_job_its_own_report():
    budget = Budget()
    budget.start()
    checks = [Says("a", lambda: [("", "big")] if os.environ.get("MUTANT_SIZE") == "big" else [])]

    def grow():
        os.environ["MUTANT_SIZE"] = "big"

    jobs = [Job(str(i), grow if i % 2 else lambda: None, (Step(0, 0, 0.0, 0.0),)) for i in range(20)]
    found = {job.id: report.ending for job, report in Pool(checks, budget, 4).run(jobs)}
    budget.stop()
    assert found == {str(i): "killed" if i % 2 else "survived" for i in range(20)}
    assert "MUTANT_SIZE" not in os.environ


def test_what_a_check_started_dies_with_the_child(tmp_path):
    def leaves_a_process_behind():
        code = "import sys, time; print(1, flush=True); time.sleep(600)"
        left = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert left.stdout is not None
        left.stdout.readline()
        (tmp_path / "pid").write_text(str(left.pid))

    run(Says("a", leaves_a_process_behind))
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and _runs(pid):
        time.sleep(0.01)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_stopping_early_kills_what_still_runs():
    budget = Budget()
    budget.start()
    pool = Pool([Says("a", lambda: os.getpid() and spin())], budget, 2)
    running: list[int] = []

    def interrupt(ids):
        running.extend(pool._running)
        raise KeyboardInterrupt

    steps = (Step(0, 0, 10.0, 10.0),)
    with pytest.raises(KeyboardInterrupt):
        list(pool.run([Job("1", lambda: None, steps), Job("2", lambda: None, steps)], interrupt))
    budget.stop()
    assert len(running) == 2
    assert not any(_runs(pid) for pid in running)
