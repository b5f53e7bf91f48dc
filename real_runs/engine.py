"""One real server as a scenario has it: behind the gate, with payloads that it opens, and its next incarnations."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fakes.outcome import Outcome
from fakes.trace import Origin
from harness.gate import FaultGate
from harness.lanes.base import EngineSpec, Pending
from harness.passage import GatedEngine
from real_runs.cleaning import SETTLE_S
from real_runs.link import HttpLink
from real_runs.pool import Held

if TYPE_CHECKING:
    import numpy as np

    from real_runs.sglang_cpu import SglangCpuLane


class RealEngine(GatedEngine):
    """One real server behind the gate. Payloads keep their shared memory until the scenario is over."""

    def __init__(self, lane: SglangCpuLane, gate: FaultGate, spec: EngineSpec, name: str, held: Held) -> None:
        super().__init__(gate, HttpLink(held.server, lane.now), name)
        self.spec, self.held = spec, held
        self._lane = lane
        self._payloads = lane.payloads()

    @property
    def url(self) -> str:
        """Where it listens; calls there are not recorded."""
        client = self.held.server.client
        return f"http://{client.host}:{client.port}"

    @property
    def gated_url(self) -> str:
        """What the client gets: the same for all incarnations, every call there is recorded and may meet a fault."""
        return self._lane.doors.url(self)

    @property
    def alive(self) -> bool:
        """Whether its HTTP process lives."""
        return self.held.server.alive

    def call(self, op: str, body: Any = None, *, origin: Origin = "probe", **options: Any) -> Outcome:
        """One call; after a generation of the harness, the moment that the scheduler needs to put it away."""
        outcome = super().call(op, body, origin=origin, **options)
        if op == "generate" and origin != "sut":
            time.sleep(SETTLE_S)
        return outcome

    # The base class promises more of a background call than EngineHandle does, which is what scenarios see.
    def start(self, op: str, body: Any = None, **options: Any) -> _Settled:  # type: ignore[override]
        """One call in the background, with the same moment after its end."""
        return _Settled(super().start(op, body, **options))

    def payloads(
        self, named: Sequence[Mapping[str, np.ndarray]], load_format: str | None = "flattened_bucket"
    ) -> list[str]:
        """torch tensors where the engine opens them, one payload per rank."""
        return self._payloads.many(named, load_format)

    def restart(self) -> None:
        """A fresh incarnation with the weights of its spec."""
        self._lane.restart(self.held, self.spec.seed)
        self.incarnation += 1

    def release(self) -> None:
        """Free the payloads."""
        self._payloads.release()


class _Settled:
    """A background call whose result comes a moment after its end."""

    def __init__(self, background: Pending) -> None:
        self._background = background

    @property
    def done(self) -> bool:
        return self._background.done

    def result(self, timeout_s: float) -> Outcome:
        outcome = self._background.result(timeout_s)
        time.sleep(SETTLE_S)
        return outcome
