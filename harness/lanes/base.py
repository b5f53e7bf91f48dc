"""What every lane offers: engines to start, call, wait for, kill and restart, on the lane's own clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from fakes.outcome import Outcome
from fakes.trace import Origin

Clock = Literal["virtual", "scaled", "real"]


@dataclass(frozen=True)
class EngineSpec:
    """What a scenario asks for. `version` is an SGLang version or "miles"; `shape` is llama, qwen2 or qwen3; `seed` makes the weights.

    `options` are further launch options under SGLang's names (enable_memory_saver, admin_api_key, ...).
    """

    version: str
    tp: int = 1
    shape: str = "llama"
    tied: bool = False
    dtype: str = "bfloat16"
    seed: int = 0
    options: tuple[tuple[str, Any], ...] = ()


class Pending(Protocol):
    """A call in the background (a generation, as a rule)."""

    @property
    def done(self) -> bool: ...

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

    def start(self, op: str, body: Any = None, *, origin: Origin = "traffic", timeout_s: float = 600.0) -> Pending: ...

    def sleep(self, seconds: float) -> None:
        """Let the lane's clock advance while the engine runs."""
        ...

    def payloads(
        self, named: Sequence[Mapping[str, np.ndarray]], load_format: str | None = "flattened_bucket"
    ) -> list[str]:
        """One base64 payload per entry of `named` (entry i is meant for tp_rank i), in the serialisation that this lane's engine opens."""
        ...

    @property
    def alive(self) -> bool: ...

    def restart(self) -> None:
        """A fresh incarnation with the weights of `spec`."""
        ...


class Lane(Protocol):
    """Where engines come from. `name` is fake, http, sglang-cpu, ...; `provides` are the fact names that this lane can give (for `Rule.needs`)."""

    name: str
    clock: Clock
    provides: frozenset[str]

    def engine(self, spec: EngineSpec, name: str = "e0") -> EngineHandle: ...

    def weights(self, spec: EngineSpec, seed: int) -> dict[str, np.ndarray]:
        """A whole set of HF-named weights for this shape: what a trainer would push. Seed `spec.seed` is what the engine starts with."""
        ...

    def expected(self, spec: EngineSpec, seed: int, prompt: Sequence[int], n: int) -> list[int] | None:
        """Greedy tokens of a clean engine that holds exactly weights(seed); None where the lane has not recorded them."""
        ...

    def close(self) -> None: ...
