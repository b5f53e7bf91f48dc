"""What machines share: one fake engine in process, its history so far, and judges over it."""

from __future__ import annotations

from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, initialize

from fakes.trace import Header, TraceWriter
from harness.bench import Bench
from harness.gate import FaultGate
from harness.history import History
from harness.lanes.base import EngineSpec
from harness.lanes.fake import FakeLane


class OnTheFake(RuleBasedStateMachine):
    """One engine in process, and the history so far. `version` and `sut` may be set by a subclass."""

    version = "0.5.23"
    sut: Any = None

    @initialize()
    def start(self) -> None:
        self.trace = TraceWriter()
        self.lane = FakeLane()
        gate = FaultGate(self.trace, self.lane.now)
        self.trace.write(Header(clock="virtual", lane="fake", engine_version=self.version, tp=1))
        self.lane.begin(gate, 0)
        self.bench = Bench(self.lane, gate, EngineSpec(version=self.version), sut_factory=self.sut)
        self.e = self.bench.e0
        self.prepare()

    def prepare(self) -> None:
        """What a machine needs before its first rule."""

    def history(self) -> History:
        return History.from_records(self.trace.records)

    def teardown(self) -> None:
        if hasattr(self, "lane"):
            self.lane.close()

    def judge(self, rules: list[Any]) -> None:
        if hasattr(self, "trace"):
            history = self.history()
            for one in rules:
                verdict = one.judge(history)
                assert verdict.status != "violated", (one.id, verdict)
