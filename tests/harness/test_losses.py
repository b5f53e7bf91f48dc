"""A worker process that is killed costs time: its unit runs again once, and nothing else is lost."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from harness import pool
from harness.errors import UsageError
from harness.frames import Answers, send_answer
from harness.losses import Losses
from harness.outputs import HistoryFolder
from harness.runner import MOST_HANGS, MOST_HANGS_IN_ALL
from harness.settings import Settings
from harness.units import Unit, UnitReport

SCENARIO = "refit/envelope/two-refits"
WHY = f"a worker process ended with exit code -9 in scenario {SCENARIO}: system under test 'x': refit 1"


def unit(sut="x", version="0.5.23"):
    return Unit(SCENARIO, version, 2, sut)


def kill_once(one):
    seen = Path(os.environ["REFITCHECK_TEST_SEEN"])
    if not seen.exists():
        seen.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return UnitReport(one), None


class Worker:
    """Stands for a process; the client's name says what becomes of it. Keeps a history of each unit."""

    killed: ClassVar[list[Unit]] = []
    stillborn = False

    def __init__(self, context, settings, vigil, place, folder):
        self.place, self.call, self.answered = place, None, False
        self.folder = copy.deepcopy(folder)
        self.pipe, self.theirs = multiprocessing.Pipe()
        self.alive, self._life = multiprocessing.Pipe()
        self.answers = Answers(self.pipe)
        self.process = SimpleNamespace(pid=1, exitcode=None, sentinel=self.alive)
        if self.stillborn:
            self.end()

    def end(self):
        self.process.exitcode = -9
        self.theirs.close()
        self._life.close()

    def give(self, call):
        self.call = call
        self.pipe.send(b"")
        one = call[1]
        if isinstance(one, Unit) and (one.sut == "kills" or (one.sut == "kills-once" and one not in self.killed)):
            self.killed.append(one)
            self.end()
            return
        if self.folder is not None:
            self.folder._counts["h"] = self.folder._counts.get("h", 0) + 1
        send_answer(self.theirs, (False, (UnitReport(one), self.folder)))

    @property
    def busy(self):
        return self.call is not None

    def ended(self, seconds):
        return True

    def dismiss(self):
        self.pipe.close()


@pytest.fixture
def crew(monkeypatch):
    monkeypatch.setattr(pool, "_Worker", Worker)
    monkeypatch.setattr(Worker, "killed", [])
    return lambda workers=2, folder=None: pool.Crew(Settings(), workers, folder)


def test_one_that_is_killed_loses_nothing_and_twice_by_one_unit_is_an_error_that_names_it(crew, capfd):
    units = [unit("fine", str(n)) for n in range(3)] + [unit("kills-once"), unit("kills")]
    reports = {report.unit: report for report in crew().reports(units)}
    assert list(map(reports.__contains__, units)) == [True] * 5
    assert [one.sut for one in units if reports[one].error] == ["kills"]
    error = f"scenario {SCENARIO}: a worker process ended with exit code -9 before it began"
    assert reports[units[4]].error == f"{error}, and so did the next one"
    assert capfd.readouterr().err == f"refitcheck: {error}; it runs again in another one\n" * 2


def test_a_process_that_is_killed_is_replaced(monkeypatch, tmp_path):
    monkeypatch.setenv("REFITCHECK_TEST_SEEN", str(tmp_path / "seen"))
    monkeypatch.setattr(pool, "_execute", kill_once)
    crew = pool.Crew(Settings())
    try:
        (report,) = crew.reports([unit()])
    finally:
        crew.close()
    assert not report.error
    assert (tmp_path / "seen").exists()


def test_the_next_worker_goes_on_with_the_folder_of_histories(crew, tmp_path):
    made = crew(1, HistoryFolder(tmp_path))
    units = [unit("fine"), unit("kills-once"), unit("kills"), unit("fine", "0.5.22")]
    assert [bool(report.error) for report in made.reports(units)] == [False, False, True, False]
    assert made.folder._counts == {"h": 3}


def test_a_worker_that_was_killed_with_nothing_to_do_costs_no_unit_its_second_chance(crew):
    made = crew(1)
    list(made.reports([unit("fine")]))
    made._workers[0].end()
    assert [bool(report.error) for report in made.reports([unit("kills-once"), unit("kills")])] == [False, True]


def test_workers_that_cannot_even_begin_end_the_run(crew, monkeypatch):
    monkeypatch.setattr(Worker, "stillborn", True)
    made = crew(1)
    (report,) = made.reports([unit("fine")])
    assert report.error.endswith("a worker process ended with exit code -9 before it began, and so did the next one")
    made._unchecked = ("fine",)
    with pytest.raises(UsageError, match="a worker process ended with exit code -9"):
        made.check()


def test_what_is_lost_is_said_with_its_scenario_once():
    losses = Losses(Settings(suts=("x",)))
    assert losses.again(unit(), WHY)
    assert not losses.again(unit(), WHY)
    place, how = f"scenario {SCENARIO}: ", "a worker process ended with exit code -9"
    told = f"{place}{how} in system under test 'x': refit 1, and so did the next one"
    assert losses.report(unit(), WHY, hung=False).error == told
    other = unit(version="0.5.22")
    assert losses.report(other, f"{how} after scenario {SCENARIO}", hung=False).error == place + how


@pytest.mark.parametrize(("hung", "most"), [(True, MOST_HANGS), (False, MOST_HANGS_IN_ALL)])
def test_a_client_that_ends_its_worker_again_and_again_is_not_asked_for_ever(hung, most):
    losses = Losses(Settings(suts=("x", "y"), versions=("0.5.23",), rules=("SESS-1",), exploration="off"))
    for _ in range(most):
        assert losses.given_up(unit()) is None
        losses.report(unit(), WHY, hung=hung)
    over = losses.given_up(unit())
    assert not over.error
    assert over.findings["SESS-1"].verdict.status == "unsupported"
    assert f"the client ended {most} worker processes before" in over.findings["SESS-1"].verdict.missing
    assert losses.given_up(unit("y")) is None
    assert losses.given_up("importing") is None
