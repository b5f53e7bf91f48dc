from __future__ import annotations

from harness import progress
from harness.progress import Tally
from harness.units import Unit, UnitReport


def report(name):
    return UnitReport(Unit(name, "0.5.23", 1))


def test_the_line_says_what_is_done_what_is_left_and_how_long_it_took():
    now = [100.0]
    tally = Tally(3, clock=lambda: now[0])
    assert tally.line() == "0 of 3 parts done, 3 left, after 0 s"
    tally.add(report("refit/a"))
    now[0] = 112.4
    assert tally.line() == "1 of 3 parts done, 2 left, after 12 s (last refit/a)"


def test_without_a_terminal_there_is_a_line_now_and_then_on_standard_error(monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY_S", 0.001)
    said = []
    monkeypatch.setattr(progress, "complain", said.append)
    with progress.progress(2) as advance:
        advance(report("refit/a"))
        while not any("refit/a" in line for line in said):  # the test's own time limit ends it
            pass
    assert said[-1].startswith("1 of 2 parts done, 1 left")
    count = len(said)
    assert capsys.readouterr() == ("", "")
    monkeypatch.undo()
    assert len(said) == count
