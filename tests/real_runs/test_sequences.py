"""The catalogue, and performing it."""

import pytest

from fakes.outcome import Outcome
from fakes.trace import Complete, Invoke, TraceWriter
from harness.gate import FaultGate
from real_runs.comparing import exchanges
from real_runs.env import SUPPORTED
from real_runs.performing import perform
from real_runs.sequence import Sequence, Step, call, join, sleep, start
from real_runs.sequences import catalogue, select


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry.name)
def test_a_sequence_is_well_formed(entry):
    started = [step.label for step in entry.steps if step.do == "start"]
    joined = [step.label for step in entry.steps if step.do == "join"]

    assert entry.about
    assert entry.steps
    assert len(set(started)) == len(started)
    assert set(joined) <= set(started)
    assert len(set(joined)) == len(joined)
    assert set(entry.tp) <= {1, 2}
    assert any(entry.applies(version, tp, entry.flavour) for version in SUPPORTED for tp in (1, 2))


def test_harmless_before_tainting_before_fatal():
    ranks = [(entry.fatal, entry.taints) for entry in select("0.5.23", 1)]

    assert ranks == sorted(ranks)
    assert ranks[-1] == (True, False)


def test_the_contract_decides_what_is_said():
    new = {entry.name for entry in select("0.5.23", 1)}
    old = {entry.name for entry in select("0.5.20", 1)}

    assert "session/update-outside" in new - old
    assert "session/none-before-0.5.21" in old - new


class ScriptedPort:
    def __init__(self):
        self.log = []

    def request(self, step):
        self.log.append(("request", step.op))
        return Outcome(ending="reply", status=200, body={"op": step.op})

    def start(self, step):
        self.log.append(("start", step.op))
        port = self

        class Pending:
            def result(self, timeout_s):
                port.log.append(("result", step.op, timeout_s))
                return Outcome(ending="dropped", error="reset")

        return Pending()

    def sleep(self, seconds):
        self.log.append(("sleep", seconds))


def test_steps_are_done_in_order_and_recorded():
    port, writer = ScriptedPort(), TraceWriter()
    steps = [
        start("a", "generate", {"n": 1}),
        sleep(0.5),
        call("flush_cache", query={"timeout": "1"}),
        call("x", raw="[1"),
        join("a", timeout_s=3.0),
        start("b", "late", timeout_s=7.0),
    ]
    perform(Sequence(name="s", about="s", steps=steps), port, FaultGate(writer, lambda: 1.0))

    assert port.log == [
        ("start", "generate"),
        ("sleep", 0.5),
        ("request", "flush_cache"),
        ("request", "x"),
        ("result", "generate", 3.0),
        ("start", "late"),
        ("result", "late", 7.0),
    ]
    invokes = [record for record in writer.records if isinstance(record, Invoke)]
    ends = [record for record in writer.records if isinstance(record, Complete)]
    assert [(record.op, record.request) for record in invokes] == [
        ("generate", {"n": 1}),
        ("flush_cache", {"?timeout": "1"}),
        ("x", {"raw": "[1"}),
        ("late", None),
    ]
    assert [record.call for record in ends] == [2, 3, 1, 4]
    assert [(answer.op, answer.ending) for answer in exchanges(writer.records)[0].answers] == [
        ("generate", "dropped"),
        ("flush_cache", "reply"),
        ("x", "reply"),
        ("late", "dropped"),
    ]


def test_a_join_says_how_its_start_is_compared():
    port, writer = ScriptedPort(), TraceWriter()
    steps = [start("a", "generate", compare="prefix"), Step(do="join", label="a", compare="ending"), call("x")]
    perform(Sequence(name="s", about="s", steps=steps), port, FaultGate(writer, lambda: 0.0))

    assert [answer.compare for answer in exchanges(writer.records)[0].answers] == ["ending", "exact"]
