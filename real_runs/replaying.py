"""Replays a recording against the fake engine, in process and in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from fakes.engine.protocol import EngineConfig
from fakes.outcome import Outcome
from fakes.trace import Header, TraceWriter
from harness.gate import FaultGate
from harness.history_files import read_records
from real_runs.comparing import Difference, Exchange, differences, exchanges
from real_runs.models import TinyModel
from real_runs.performing import PendingCall, perform
from real_runs.recipes import fill
from real_runs.sequence import ADMIN_KEY, API_KEY, Step
from real_runs.sequence import Sequence as Exchanges

if TYPE_CHECKING:
    from fakes.fronts.inprocess import Server
    from fakes.trainer import ExportRegistry
    from fakes.world import World


class StaleRecording(Exception):
    """The recording was made with other weights than the project makes now: record again."""


class FakePort:
    """A fake engine in process as a `Port`."""

    def __init__(self, world: World, server: Server, registry: ExportRegistry, model: TinyModel) -> None:
        self._world, self._server, self._registry, self._model = world, server, registry, model

    def request(self, step: Step) -> Outcome:
        """One call, waited for."""
        return streamed(pending := self._send(step), pending.result())

    def start(self, step: Step) -> PendingCall:
        """One call in the background."""
        return _Streamed(self._send(step))

    def sleep(self, seconds: float) -> None:
        """Virtual seconds."""
        self._world.sleep(seconds)

    def _send(self, step: Step) -> Any:
        from fakes.trainer import probe_payloads

        def wrap(named: Any, load_format: str | None) -> str:
            return str(probe_payloads(self._registry, [named], load_format)[0])

        return self._server.start(
            step.method,
            step.op,
            fill(step.body, self._model, wrap, self._model.folder),
            content=None if step.raw is None else step.raw.encode(),
            query=step.query,
            bearer=step.bearer,
            timeout_s=step.timeout_s,
        )


def streamed(pending: Any, outcome: Outcome) -> Outcome:
    """An event stream's body as the HTTP client gives it: {"stream": [chunks]}."""
    if not pending.chunks or outcome.ending != "reply":
        return outcome
    return msgspec.structs.replace(outcome, body={"stream": [*pending.chunks, "[DONE]"]})


class _Streamed:
    def __init__(self, pending: Any) -> None:
        self._pending = pending

    def result(self, timeout_s: float) -> Outcome:
        """Its outcome."""
        return streamed(self._pending, self._pending.result(timeout_s))


def read(path: Path) -> tuple[Header, list[Exchange]]:
    """A recording's header and sequences. StaleRecording when its weights are not ours any more."""
    records = read_records(path)
    head = records[0]
    assert isinstance(head, Header)
    model = model_of(head)
    for seed, digest in head.meta["weights"].items():
        if model.digest(int(seed)) != digest:
            raise StaleRecording(f"{path.name}: the weights of seed {seed} have changed since it was recorded")
    return head, exchanges(records)


def model_of(head: Header) -> TinyModel:
    """The model that a recording was made with."""
    meta = head.meta
    return TinyModel(meta["shape"], meta["tied"], meta["dtype"], head.tp)


def config_of(head: Header) -> EngineConfig:
    """The fake's launch options for a recording's server."""
    flavour = head.meta["flavour"]
    return EngineConfig(
        profile=head.engine_version,
        model_path=model_of(head).folder(0),
        tp_size=head.tp,
        dtype=head.meta["dtype"],
        device="cpu",
        api_key=API_KEY if flavour in ("api_key", "both_keys") else None,
        admin_api_key=ADMIN_KEY if flavour in ("admin_key", "both_keys") else None,
        checker_cuda_shim=flavour == "checker_cuda",
    )


def replay(head: Header, recorded: Exchange) -> Exchange:
    """The same steps on a fresh fake engine."""
    from fakes.fronts.inprocess import Server
    from fakes.trainer import ExportRegistry
    from fakes.world import World

    model = model_of(head)
    sequence = msgspec.convert(recorded.data, Exchanges)
    registry = ExportRegistry()
    writer = TraceWriter()
    with World(seed=0, resolver=registry) as world:
        engine = world.add_engine("e0", config_of(head), model.weights(0), model.config)
        gate = FaultGate(writer, lambda: world.now)
        perform(sequence, FakePort(world, Server(world, engine), registry, model), gate)
        if recorded.died and engine.alive:
            world.sleep(15.0)
        gate.fact("death", {"dead": not engine.alive}, engine="e0", source="probe")
    return exchanges(writer.records)[0]


def compare(head: Header, recorded: Exchange) -> list[Difference]:
    """What the fake answers differently from the recording."""
    dtype = head.meta["dtype"]
    near_tie = NearTies(model_of(head)) if dtype == "bfloat16" else None
    return differences(recorded, replay(head, recorded), dtype, near_tie)


class NearTies:
    """Decides whether two tokens were within one bfloat16 step of a tie, under any of the weights a sequence may hold.

    A parting is judged on the clean weights of the three seeds: torn ones are compared at float32 only.
    """

    def __init__(self, model: TinyModel, seeds: Sequence[int] = (0, 1, 2)) -> None:
        self._model, self._seeds = model, seeds
        self._models: list[Any] = []

    def __call__(self, before: Sequence[int], one: int, other: int) -> bool:
        """See `real_runs.comparing.NearTie`."""
        return any(self._close(logits, one, other) for logits in self._logits(before))

    def _logits(self, tokens: Sequence[int]) -> list[np.ndarray]:
        from fakes.engine.model import Model
        from fakes.engine.weights import RankWeights

        if not self._models:
            for seed in self._seeds:
                rank = RankWeights(self._model.config, 0, 1, self._model.dtype)
                rank.load(self._model.weights(seed).items())
                self._models.append(Model(self._model.config, [rank]))
        return [model.forward(list(tokens), None)[0][-1] for model in self._models]

    @staticmethod
    def _close(logits: np.ndarray, one: int, other: int) -> bool:
        # bfloat16 has 8 bits of precision: one step at the size of the best logit.
        step = 2.0 ** (np.floor(np.log2(max(abs(float(logits.max())), 1e-6))) - 7)
        best = float(logits.max())
        return bool(best - float(logits[one]) <= step and best - float(logits[other]) <= step)
