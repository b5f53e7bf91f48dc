"""A history that a run keeps can be judged again, whichever lane it is of and however many wrote it."""

from __future__ import annotations

import pytest

from fakes.trace import Header, TraceWriter
from harness.cli import invoke
from harness.history import History
from harness.history_files import read_history, write_history
from tests.harness.toys import fact


@pytest.mark.parametrize("lane", [("fake",), ("http", "--lane-option", "time_scale=0.02")], ids=["fake", "http"])
def test_what_a_lane_keeps_is_judged_again_and_held(lane, tmp_path, capsys):
    asked = ("run", "--scenario", "engine/sess/an-empty-session", "-n", "1", "--histories", str(tmp_path))
    assert invoke([*asked, "--lane", *lane]) in (0, 2), capsys.readouterr()
    (path,) = tmp_path.iterdir()
    assert invoke(["judge", str(path)]) in (0, 2), capsys.readouterr()
    assert read_history(path).facts(source="core")


def test_the_order_of_several_writers_is_kept_whatever_they_counted(tmp_path):
    def writer(epoch, *facts):
        trace = TraceWriter()
        trace.write(Header(engine="e0", meta={"epoch": epoch}))
        for record in facts:
            trace.write(record)
        return trace.records

    clients = writer(10.0, fact("a", t=1.0), fact("d", t=5.0))
    engines = writer(0.0, fact("b", t=12.0), fact("c", t=13.0))
    history = History.from_records(clients, engines)
    write_history(tmp_path / "h.jsonl", history)
    again = read_history(tmp_path / "h.jsonl")
    assert [note.name for note in again.facts()] == [note.name for note in history.facts()] == ["a", "b", "c", "d"]
    assert again.header.meta == history.header.meta
