"""What a client gets of an engine: a gated endpoint, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from fakes.outcome import Outcome
from harness.errors import UsageError
from harness.exits import ends_run
from harness.lanes.base import EngineHandle, Pending
from harness.sut.protocol import Endpoint


class GatedEndpoint:
    """An engine as a client sees it; every call is of origin sut. `gpu_ids` are the colocated GPUs, one per tp_rank."""

    def __init__(self, engine: EngineHandle, gpu_ids: tuple[int, ...]) -> None:
        self._engine = engine
        self.name = engine.name
        self.tp = engine.spec.tp
        self.gpu_ids = gpu_ids

    @property
    def url(self) -> str | None:
        """The engine's gated url, for code that speaks HTTP itself; UsageError on a lane whose engines have none."""
        url: str | None = getattr(self._engine, "gated_url", None)
        if url is None:
            why = f"engine {self.name} runs in process and has no url: an adapter of urls needs --lane http"
            raise ends_run(UsageError(why))
        return url

    @property
    def incarnation(self) -> int:
        """Grows with every restart of the engine."""
        return self._engine.incarnation

    def request(
        self,
        op: str,
        body: Any = None,
        *,
        method: str = "POST",
        query: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Outcome:
        """One call; see `harness.sut.protocol.Endpoint`."""
        _check(op, timeout_s)
        return self._engine.call(op, body, method=method, query=query, timeout_s=timeout_s, origin="sut")

    def start(self, op: str, body: Any = None, *, method: str = "POST", timeout_s: float) -> Callable[[], Outcome]:
        """The same in the background; the returned object is called for the outcome."""
        _check(op, timeout_s)
        return Waiting(self._engine.start(op, body, method=method, timeout_s=timeout_s, origin="sut"), timeout_s)


def _check(op: str, timeout_s: object) -> None:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        why = f"the adapter called /{op} with timeout_s={timeout_s!r}: it is a number of seconds of the fleet's clock, "
        raise ends_run(UsageError(f"{why}as every call of a client needs an end"))


class Waiting:
    """A call in the background: call it for the outcome, or look whether it is known."""

    def __init__(self, pending: Pending, timeout_s: float) -> None:
        self._pending = pending
        self._timeout_s = timeout_s

    @property
    def done(self) -> bool:
        """Whether the outcome is known, so that asking for it does not wait."""
        return self._pending.done

    def __call__(self) -> Outcome:
        """Wait for the outcome."""
        return self._pending.result(self._timeout_s)


def endpoints_of(
    engines: Sequence[EngineHandle], given: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[Endpoint, ...]:
    """Gated endpoints on consecutive GPUs: e0 has GPUs 0 to tp-1, and so on; `given` has other GPUs by engine name."""
    out: list[Endpoint] = []
    first = 0
    for engine in engines:
        gpus = (given or {}).get(engine.name) or tuple(range(first, first + engine.spec.tp))
        out.append(cast(Endpoint, GatedEndpoint(engine, gpus)))
        first += engine.spec.tp
    return tuple(out)
