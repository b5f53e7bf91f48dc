"""Performs a sequence on any engine and writes what happened: the real one when recording, the fake when replaying."""

from __future__ import annotations

from typing import Protocol

import msgspec

from fakes.outcome import Outcome
from fakes.trace import Trainer
from harness.gate import FaultGate, Passage
from real_runs.sequence import Sequence, Step


class PendingCall(Protocol):
    """A call in the background."""

    def result(self, timeout_s: float) -> Outcome:
        """Its outcome, at most `timeout_s` seconds of the engine's clock from now."""
        ...


class Port(Protocol):
    """The way to one engine."""

    def request(self, step: Step) -> Outcome:
        """Do it and wait."""
        ...

    def start(self, step: Step) -> PendingCall:
        """Do it in the background."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let its clock advance."""
        ...


def perform(sequence: Sequence, port: Port, gate: FaultGate, engine: str = "e0") -> None:
    """Every step in order, recorded by the gate. Background calls that nobody joins are joined at the end."""
    gate.trace.write(Trainer(t=gate.now(), name="sequence", data=msgspec.to_builtins(sequence)))
    pending: dict[str, tuple[Passage, PendingCall, float]] = {}
    for step in sequence.steps:
        if step.do == "sleep":
            port.sleep(step.seconds)
        elif step.do == "call":
            passage = _admit(gate, engine, step)
            gate.settle(passage, port.request(step))
        elif step.do == "start":
            passage = _admit(gate, engine, step)
            pending[step.label] = (passage, port.start(step), step.timeout_s)
        else:
            passage, waiting, _ = pending.pop(step.label)
            gate.settle(passage, waiting.result(step.timeout_s))
    for passage, waiting, timeout_s in pending.values():
        gate.settle(passage, waiting.result(timeout_s))


def _admit(gate: FaultGate, engine: str, step: Step) -> Passage:
    """Recipes stay recipes in the record: a payload's own text differs from run to run."""
    return gate.admit(
        engine=engine,
        incarnation=0,
        op=step.op,
        origin="traffic" if step.op == "generate" else "probe",
        method=step.method,
        body=step.body if step.raw is None else {"raw": step.raw},
        query=step.query,
    )
