"""Mutants that share a child: what one leaves behind must not become the verdict of another."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace

from harness.mutate.budget import Budget
from harness.mutate.jobs import Job, Report, Step
from harness.mutate.pool import Pool, batches
from harness.mutate.pursuit import Killers
from tests.harness.mutate.samples import Says

LEFT: list[str] = []
NOW: list[str] = []


def mutant(name, *checks, group="module", before=lambda: None, undo=True, **more):
    """A job under which NOW is its name."""

    def apply():
        before()
        NOW.append(name)
        return NOW.clear if undo else None

    steps = tuple(Step(i, 0, 0.0, 0.0) for i in checks)
    return Job(name, apply, steps, group=group, **more)


def run(checks, jobs, workers=1, deadline=None):
    budget = Budget()
    budget.start()
    # one batch for all of them, however few they are
    pool = Pool(checks, budget, workers)
    found: dict[str, Report] = {}
    for job, report in pool.run(jobs, deadline=deadline):
        assert job.id not in found
        found[job.id] = report
    budget.stop()
    return found


def endings(found):
    return {name: report.ending for name, report in found.items()}


def pids(checks, jobs):
    seen = {}

    def where():
        return [("", str(os.getpid()))]

    for name, report in run([Says("where", where), *checks], jobs).items():
        seen[name] = report.text
    return seen


def many(*jobs):
    """So many jobs of another group that those given fit into one batch."""
    return [*jobs, *(mutant(f"filler{i}", 0, group="filler") for i in range(40))]


def test_jobs_of_a_group_share_children_and_others_do_not():
    jobs = many(mutant("a", 0), mutant("b", 0), mutant("c", 0, group=""), mutant("d", 0))
    assert [[j.id for j in b] for b in batches(jobs, 1)][:3] == [["a", "b"], ["c"], ["d"]]
    assert max(len(b) for b in batches(jobs, 1)) <= 11
    assert max(len(b) for b in batches(jobs, 4)) <= 2


def test_every_mutant_sees_only_itself():
    checks = [Says("now", lambda: [("", ",".join(NOW))] if NOW else [])]
    found = run(checks, many(mutant("a", 0), mutant("b", 0), mutant("c", 0)))
    assert [found[name].text for name in "abc"] == ["a", "b", "c"]
    assert [found[name].shared for name in "abc"] == [False, True, True]
    assert NOW == []


def test_a_kill_that_unmutated_code_repeats_is_not_believed():
    """The first mutant leaves something behind that fails the check from then on."""

    def dirty():
        if NOW == ["dirty"]:
            LEFT.append("dirt")
            return []
        return [("", "dirt")] if LEFT else []

    jobs = many(mutant("dirty", 0), mutant("clean", 0), mutant("clean too", 0))
    found = run([Says("dirt", dirty)], jobs)
    assert {found[name].ending for name in ("dirty", "clean", "clean too")} == {"survived"}
    assert not found["clean"].shared


def test_a_mutant_that_ends_the_child_takes_no_other_with_it():
    def ends():
        if NOW == ["ends"]:
            os._exit(3)
        return [("", "seen")] if NOW == ["seen"] else []

    jobs = many(mutant("seen", 0), mutant("lives", 0), mutant("ends", 0), mutant("after", 0))
    found = endings(run([Says("ends", ends)], jobs))
    assert [found[name] for name in ("seen", "lives", "ends", "after")] == ["killed", "survived", "crash", "survived"]


def test_a_child_that_dies_while_verdicts_are_made_sure_of_costs_none_of_them():
    """Unmutated, in the same process, the check that killed ends the child."""

    def kills_later():
        if NOW == ["b"]:
            LEFT.append("later")
            return [("", "noticed")]
        if LEFT:
            os.kill(os.getpid(), signal.SIGKILL)
        return []

    found = endings(run([Says("later", kills_later)], many(mutant("a", 0), mutant("b", 0), mutant("c", 0))))
    assert [found[name] for name in "abc"] == ["survived", "killed", "survived"]


def test_a_mutant_that_leaves_a_thread_or_a_process_is_the_last_of_its_child():
    held = threading.Event()

    def leaves_a_thread():
        threading.Thread(target=held.wait, daemon=True).start()

    def where():
        return [("", str(os.getpid()))]

    jobs = many(mutant("a", 0), mutant("thread", 0, before=leaves_a_thread), mutant("b", 0), mutant("c", 0))
    found = run([Says("where", where)], jobs)
    assert found["a"].text != found["b"].text
    assert endings(found)["thread"] == "killed"


def test_what_cannot_be_undone_is_the_last_of_its_child():
    jobs = many(mutant("a", 0), mutant("b", 0, undo=False), mutant("c", 0))
    found = run([Says("now", lambda: [("", ",".join(NOW))])], jobs)
    assert [found[name].text for name in "abc"] == ["a", "b", "c"]


def test_after_the_deadline_no_job_begins_and_what_was_begun_is_told():
    def slow():
        time.monotonic = lambda: 1e12  # in the child: it is late
        return [("", "seen")]

    found = run([Says("slow", slow)], many(mutant("a", 0), mutant("b", 0)), deadline=time.monotonic() + 3600)
    assert endings(found)["a"] == "killed"
    assert "b" not in found


def test_checks_that_killed_go_first_when_they_cost_little():
    steps = tuple(Step(i, 0, cpu, cpu) for i, cpu in enumerate((0.001, 0.001, 0.002, 0.5)))
    killers = Killers()
    job = Job("m", lambda: None, steps)
    assert [s.check for s in killers.order(job)] == [0, 1, 2, 3]
    for check in (0, 1):
        killers.saw(job, check, False)
    killers.saw(job, 2, True)
    killers.saw(job, 3, True)
    assert [s.check for s in killers.order(job)] == [2, 0, 1, 3]
    declared = Job("m", lambda: None, steps, breaks=frozenset({"R-1"}), declared=3)
    assert [s.check for s in killers.order(declared)] == [0, 1, 2, 3]
    all_of_them = Job("m", lambda: None, steps, breaks=frozenset({"R-1"}), declared=4)
    assert [s.check for s in killers.order(all_of_them)] == [2, 0, 1, 3]


def test_what_killed_mutants_of_the_same_function_goes_before_what_killed_others():
    steps = tuple(Step(i, 0, 0.001, 0.001) for i in range(3))
    one, two = (
        Job(n, lambda: None, steps, site=SimpleNamespace(source=SimpleNamespace(name="m"), qualname=n)) for n in "ab"
    )
    killers = Killers()
    for job, check in ((one, 1), (two, 2)):
        killers.learn(job, Report("killed", check, met=[1, 2] if check == 2 else [1]))
        killers.learn(job, Report("killed", check, met=[check]))
    assert killers.order(one)[0].check == 1
    assert killers.order(two)[0].check == 2
