from __future__ import annotations

from harness.mutate.plan import Plan
from harness.mutate.screen import Log
from harness.mutate.session import Session
from tests.harness.mutate.test_session import made  # noqa: F401 - `made` is a fixture


def test_a_log_is_told_now_and_then_how_far_the_session_is():
    told, now = [], [100.0]
    log = Log(told.append, lambda: now[0])
    log.phase("mutants", 9)
    log.running(["first"])
    assert told == []
    now[0] += Log.EVERY_S
    log.done()
    log.running(["second", "third"])
    log.running(["second", "third"])
    assert told == ["15 s, mutants 1/9: second"]
    log.phase("survivors again", 2)
    log.reached(1)
    now[0] += Log.EVERY_S
    log.running([])
    assert told[1:] == ["30 s, survivors again 1/2"]


def test_the_baseline_is_told_check_by_check(made, monkeypatch):  # noqa: F811
    told: list[str] = []
    monkeypatch.setattr(Log, "EVERY_S", 0.0)
    _, program, host = made
    log = Log(told.append, lambda: 0.0)
    session = Session(program, host, Plan([]), log)
    log.phase("baseline", 3)
    session._measuring(0, [])
    session._measuring(1, [1])
    assert told == ["0 s, baseline 0/3", "0 s, baseline 1/3: flushed"]
