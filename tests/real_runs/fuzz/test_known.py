import json
import re

import msgspec
import pytest

from fakes.engine.profiles import profile
from real_runs.comparing import Difference
from real_runs.fuzz.fake_updater import FakeUpdater
from real_runs.fuzz.known import Explainer, Known, differing, load
from real_runs.fuzz.server_run import explains
from real_runs.fuzz.sides import FakeSide, tiny
from real_runs.sequence import Sequence, Step

ENTRY = Known(
    id="x", lane="oracle", versions=["0.5.23"], op="end_weight_update", what="w", why="y", since="2026-11-30",
    right="real", real=r'\{"success": true\}', fake=r'\{"success": false\}', steps="[]", says="{}",
)  # fmt: skip


def test_an_entry_explains_its_own_difference_only():
    explain = Explainer("oracle", "0.5.23", [ENTRY])
    step = [{"op": "end_weight_update"}]
    assert explain(step, {"success": True, "a": 1}, {"success": False, "a": 1}) == "x"
    assert explain(step, {"success": False}, {"success": True}) is None
    assert explain(step, {"success": True, "a": 1}, {"success": False, "a": 2}) is None
    assert explain([{"op": "begin_weight_update"}], {"success": True}, {"success": False}) is None
    assert Explainer("oracle", "0.5.22", [ENTRY])(step, {"success": True}, {"success": False}) is None
    assert Explainer("server", "0.5.23", [ENTRY])(step, {"success": True}, {"success": False}) is None


def test_only_fields_that_differ_are_matched():
    assert differing({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == ({"b": 2, "c": None}, {"b": 3, "c": 4})


def _entries():
    return [pytest.param(entry, version, id=f"{entry.id}-{version}") for entry in load() for version in entry.versions]


def stale(entry, version):
    """Why an entry is stale, "" when the fake still differs as it says."""
    if entry.lane == "server":
        return stale_on_a_server(entry, version)
    steps, says = json.loads(entry.steps), json.loads(entry.says)
    answer = FakeUpdater(version).play(steps)[-1]
    if answer == says:
        return "the fake answers as the real one does"
    return "" if Explainer(entry.lane, version, [entry])(steps, says, answer) else "the difference is another one now"


def stale_on_a_server(entry, version):
    """The same for calls over HTTP: the fake still says what `fake` matches, the real one said what `real` does."""
    steps = msgspec.json.decode(entry.steps, type=list[Step])
    done = FakeSide(version, tiny()).perform(Sequence(name="known", about="", steps=steps))
    answer = next(a for a in reversed(done.answers) if re.fullmatch(entry.op, a.op))
    said = Difference("known", 1, answer.op, "status", entry.says, f"{answer.status} {answer.body}")
    return "" if explains(entry, said) else "the difference is another one now"


@pytest.mark.parametrize(("entry", "version"), _entries())
def test_no_entry_is_stale(entry, version):
    assert profile(version)
    assert stale(entry, version) == ""


def test_a_stale_entry_is_found():
    steps = json.dumps([{"op": "end_weight_update", "body": {}}])
    real = FakeUpdater("0.5.23").play(json.loads(steps))[-1]
    mended = {"steps": steps, "says": json.dumps(real)}
    assert stale(_with(mended), "0.5.23") == "the fake answers as the real one does"
    other = {"steps": steps, "says": json.dumps({**real, "message": "else"})}
    assert stale(_with(other), "0.5.23") == "the difference is another one now"
    same = {"steps": steps, "says": json.dumps({**real, "success": True})}
    assert stale(_with(same), "0.5.23") == ""


def test_a_stale_entry_of_a_server_is_found():
    entry = next(entry for entry in load() if entry.lane == "server")
    assert stale(entry, entry.versions[0]) == ""
    mended = msgspec.structs.replace(entry, fake="400 .*")
    assert stale(mended, entry.versions[0]) == "the difference is another one now"
    misread = msgspec.structs.replace(entry, says="200 {}")
    assert stale(misread, entry.versions[0]) == "the difference is another one now"


def _with(fields):
    return msgspec.structs.replace(ENTRY, **fields)
