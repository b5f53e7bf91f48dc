"""What every lane offers: engines to start, call, wait for, kill and restart, on the lane's own clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fakes.outcome import Outcome
from fakes.trace import AnyRecord, Origin

if TYPE_CHECKING:
    import numpy as np

    from harness.gate import FaultGate

Clock = Literal["virtual", "scaled", "real"]


@dataclass(frozen=True)
class EngineSpec:
    """What a scenario asks for.

    `version` is an SGLang version or "miles"; `shape` is llama, qwen2 or qwen3; `seed` makes the weights.
    `options` are further launch options under SGLang's names (enable_memory_saver, admin_api_key, ...).
    """

    version: str
    tp: int = 1
    shape: str = "llama"
    tied: bool = False
    dtype: str = "bfloat16"
    seed: int = 0
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Expected:
    """What a clean engine answers greedily. `logprobs` (nat, one per token) where the lane knows them."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None


class Pending(Protocol):
    """A call in the background (a generation, as a rule)."""

    @property
    def done(self) -> bool:
        """Whether its end is known."""
        ...

    def result(self, timeout_s: float) -> Outcome:
        """Wait at most `timeout_s` of the lane's clock; ending "timeout" when it is not done by then."""
        ...


class EngineHandle(Protocol):
    """One running engine behind the gate: every call through it is recorded with its origin."""

    name: str
    incarnation: int
    spec: EngineSpec

    def call(
        self,
        op: str,
        body: Any = None,
        *,
        method: str = "POST",
        query: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        origin: Origin = "probe",
        bearer: str | None = None,
    ) -> Outcome:
        """`op` is the path without the first slash ("begin_weight_update"). Never raises for what the engine does."""
        ...

    def start(
        self,
        op: str,
        body: Any = None,
        *,
        method: str = "POST",
        origin: Origin = "traffic",
        timeout_s: float = 600.0,
        bearer: str | None = None,
        after_s: float = 0.0,
    ) -> Pending:
        """The same in the background, leaving `after_s` from now; its caller gives up `timeout_s` after that."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let the lane's clock advance while the engine runs."""
        ...

    def payloads(
        self, named: Sequence[Mapping[str, np.ndarray]], load_format: str | None = "flattened_bucket"
    ) -> list[str]:
        """One base64 payload per entry of `named` (entry i is for tp_rank i), as this lane's engine opens them."""
        ...

    @property
    def alive(self) -> bool:
        """Whether the process tree lives."""
        ...

    def kill(self) -> None:
        """End the process tree at once."""
        ...

    def restart(self) -> None:
        """A fresh incarnation with the weights of `spec`."""
        ...


class Lane(Protocol):
    """Where engines come from; also the scenario's clock.

    `name` is fake, http, sglang-cpu, ...; `provides` are the fact names that this lane can give (for `Rule.needs`), and
    what else scenarios may need: "groups" where `groups()` gives the trainer's side of weight-update groups
    (`fakes.transport.groups.Groups`). `expect(needs)`, where a lane has it, is told a scenario's needs before `begin`.
    The entry point is a factory `(options: Mapping[str, Any]) -> Lane`. One lane serves a whole run: each scenario is
    `begin`, then engines, then `finish`. What a lane keeps between scenarios (a real server) is its own affair, as long
    as an engine that it hands out is clean.
    """

    name: str
    clock: Clock
    provides: frozenset[str]

    def begin(self, gate: FaultGate, seed: int) -> None:
        """A fresh scenario: every call goes through `gate`, facts of an in-process core go to `gate.trace`."""
        ...

    def finish(self) -> list[list[AnyRecord]]:
        """The scenario is over, its engines are not needed any more; returns what other processes recorded."""
        ...

    def now(self) -> float:
        """Seconds of the lane's clock since `begin`."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let the clock advance while all engines run."""
        ...

    def engine(self, spec: EngineSpec, name: str = "e0") -> EngineHandle:
        """A clean engine, ready to serve."""
        ...

    def trainer(self, ranks: int) -> Any:
        """The trainer kit of this lane for N ranks (`Fleet.trainer`), or None where there is none."""
        ...

    def weights(self, spec: EngineSpec, seed: int) -> dict[str, np.ndarray]:
        """A whole set of HF-named weights for this shape: what a trainer would push.

        Seed `spec.seed` is what the engine starts with.
        """
        ...

    def expected(self, spec: EngineSpec, seed: int, prompt: Sequence[int], n: int) -> Expected | None:
        """What a clean engine that holds exactly weights(seed) answers; None where the lane has not recorded it."""
        ...

    def close(self) -> None:
        """The run is over: stop everything."""
        ...
