"""The lane in process: fake engines in a World, virtual time, facts from the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fakes.outcome import Outcome
from fakes.trace import AnyRecord
from harness.errors import HarnessError, UsageError
from harness.gate import FaultGate
from harness.lanes.base import Clock, EngineHandle, EngineSpec, Expected
from harness.lanes.loader import refuse_options
from harness.passage import GatedEngine, Request

if TYPE_CHECKING:
    import numpy as np

    from fakes.engine.protocol import Die
    from fakes.transport.groups import WorldGroups
    from fakes.world import Ticket, World

HANG_S = 1.0
CORE_FACTS = (
    "session",
    "load",
    "flush",
    "version",
    "pause",
    "memory",
    "serve",
    "request",
    "raise",
    "barrier",
    "die",
)


class FakeLane:
    """Fake engines of any version, alone or a fleet, in this process.

    Option `hang_s`: virtual seconds after which a wait in a group that has no deadline of its own counts as a hang.
    """

    name = "fake"
    kind = "fake"
    where = "in process"
    clock: Clock = "virtual"
    default_tp = 2
    provides = frozenset({*(f"core:{fact}" for fact in CORE_FACTS), "groups"})

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        self.hang_s = _hang(given.pop("hang_s", HANG_S))
        refuse_options(self.name, given, ("hang_s",))
        self._world: World | None = None
        self._gate: FaultGate | None = None
        self._kits: list[Any] = []
        self.on_death: Callable[[str, str], None] | None = None
        """Told of each engine that dies and of what, at that moment."""

    @property
    def versions(self) -> tuple[str, ...]:
        """The engine versions that can be faked."""
        return known_versions()

    @property
    def world(self) -> World:
        """The world of the scenario that runs."""
        if self._world is None:
            raise HarnessError("the lane is between scenarios")
        return self._world

    def begin(self, gate: FaultGate, seed: int) -> None:
        """A fresh world."""
        from fakes.trainer import ExportRegistry
        from fakes.world import World

        self._gate = gate
        self._registry = ExportRegistry()
        self._world = World(seed, gate.trace, resolver=self._registry)

    def finish(self) -> list[list[AnyRecord]]:
        """End the world; HarnessError when a fake broke in it."""
        for kit in self._kits:
            kit.close()
        self._kits = []
        world, self._world, self._gate = self._world, None, None
        if world is not None:
            world.close()
            broken = getattr(world, "broken", None)
            if broken is not None:
                raise HarnessError(f"the fake broke: {broken}") from broken
        return []

    def now(self) -> float:
        """Virtual seconds since `begin`; 0 between scenarios."""
        return self._world.now if self._world is not None else 0.0

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.world.sleep(seconds)

    def engine(self, spec: EngineSpec, name: str = "e0") -> EngineHandle:
        """A fresh fake engine."""
        assert self._gate is not None
        return FakeEngine(self, self._gate, spec, name)

    def trainer(self, ranks: int) -> Any:
        """A trainer kit of `ranks` threads under the world's baton."""
        from fakes.trainer import TrainerKit

        assert self._gate is not None
        kit = TrainerKit(
            self.world, ranks, self._gate.trainer, registry=self._registry, groups=lambda kit: self.groups(kit.ranks)
        )
        self._kits.append(kit)
        return kit

    def groups(self, ranks: int = 1) -> WorldGroups:
        """The side of a trainer of `ranks` ranks in its groups with engines: NCCL where an engine has a GPU."""
        from fakes.transport.groups import WorldGroups

        assert self._gate is not None
        on_gpu = any(engine.config.device == "cuda" for engine in self.world.engines.values())
        backend = "nccl" if on_gpu else "gloo"
        return WorldGroups(self.world, self._gate.trainer, ranks=ranks, backend=backend, hang_s=self.hang_s)

    def weights(self, spec: EngineSpec, seed: int) -> dict[str, np.ndarray]:
        """Random weights of the tiny model of this shape; the same seed gives the same bytes."""
        return dict(tiny_weights(spec.shape, spec.tied, spec.dtype, seed))

    def expected(self, spec: EngineSpec, seed: int, prompt: Sequence[int], n: int) -> Expected | None:
        """What the fake's own model answers with exactly these weights and nothing cached."""
        held = quantisation(spec)
        return clean_answer(spec.shape, spec.tied, spec.dtype, spec.tp, seed, tuple(prompt), n, held)

    def close(self) -> None:
        """Nothing is kept between scenarios."""
        self.finish()


def _hang(value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"hang_s {value!r} is not a number of seconds") from None
    if not 0 < seconds <= 3600:
        raise UsageError(f"hang_s {value!r} is not between 0 and 3600")
    return seconds


class FakeEngine(GatedEngine):
    """One fake engine of the world; `restart` makes the next incarnation."""

    url: str | None = None

    def __init__(self, lane: FakeLane, gate: FaultGate, spec: EngineSpec, name: str) -> None:
        self.spec = spec
        self._lane = lane
        self._link: _WorldLink
        super().__init__(gate, _WorldLink(lane.world, name), name)
        self._start()

    def _start(self) -> None:
        engine = self._lane.world.add_engine(
            self.name,
            engine_config(self.spec),
            _checkpoint(self._lane.weights(self.spec, self.spec.seed), quantisation(self.spec)),
            model_config(self.spec.shape, self.spec.tied, self.spec.dtype),
        )
        self.incarnation = engine.incarnation
        engine.shell.on_die = self._died

    def _died(self, died: Die) -> None:
        if self._lane.on_death is not None:
            self._lane.on_death(self.name, f"{died.error.type}: {died.error.message}")

    @property
    def alive(self) -> bool:
        """Whether its process tree lives."""
        return self._lane.world.engines[self.name].alive

    def restart(self) -> None:
        """The next incarnation, with the weights that the first began with."""
        self._start()

    def payloads(
        self, named: Sequence[Mapping[str, np.ndarray]], load_format: str | None = "flattened_bucket"
    ) -> list[str]:
        """Simulated CUDA-IPC payloads of a probe, one per rank; see `fakes.trainer`."""
        from fakes.trainer import probe_payloads

        return probe_payloads(self._lane._registry, named, load_format)


class _WorldLink:
    """`harness.passage.Link` over a world."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name

    def submit(self, request: Request, on_done: Callable[[Outcome], None] | None = None) -> _WorldReply:
        ticket = self._world.submit(
            self._name, request.method, "/" + request.op, request.body, request.query, request.bearer
        )
        if on_done is not None:
            ticket.on_done(lambda done: on_done(done.outcome) if done.outcome is not None else None)
        return _WorldReply(self._world, ticket)

    def kill(self) -> None:
        self._world.engines[self._name].kill()

    def now(self) -> float:
        return self._world.now

    def sleep(self, seconds: float) -> None:
        self._world.sleep(seconds)

    def spawn(self, work: Callable[[], None]) -> Callable[[], None]:
        participant = self._world.spawn(work, name=f"call to {self._name}")

        def join() -> None:
            self._world.join(participant)
            participant.value()

        return join


class _WorldReply:
    """`harness.passage.Reply` over a ticket."""

    def __init__(self, world: World, ticket: Ticket) -> None:
        self._world, self._ticket = world, ticket

    @property
    def done(self) -> bool:
        return self._ticket.done

    def wait(self, timeout_s: float) -> Outcome:
        return self._world.wait(self._ticket, timeout_s)

    def cancel(self) -> None:
        self._ticket.time_out()


def quantisation(spec: EngineSpec) -> str:
    """How an engine holds its linear layers: a key of `fakes.engine.quantised.SCHEMES`, or ""."""
    return str(dict(spec.options).get("quantisation") or "")


def _checkpoint(weights: Mapping[str, np.ndarray], held: str) -> Mapping[str, np.ndarray]:
    if not held:
        return weights
    from fakes.engine.quantised import checkpoint

    return checkpoint(weights, held)


def known_versions() -> tuple[str, ...]:
    """The engine versions that can be faked."""
    from fakes.engine.profiles import PROFILES

    return tuple(PROFILES)


def engine_config(spec: EngineSpec) -> Any:
    """The fake's launch configuration. UsageError for an option that it does not know."""
    import msgspec

    from fakes.engine.protocol import EngineConfig

    options = dict(spec.options)
    unknown = set(options) - {field.name for field in msgspec.structs.fields(EngineConfig)}
    if unknown:
        raise UsageError(f"the fake engine has no launch option {', '.join(sorted(unknown))}")
    return EngineConfig(profile=spec.version, tp_size=spec.tp, dtype=spec.dtype, **options)


@lru_cache(maxsize=64)
def model_config(shape: str, tied: bool, dtype: str) -> dict[str, Any]:
    """config.json of the tiny model."""
    from fakes.tiny import tiny_config

    return tiny_config(shape, tied, dtype)


@lru_cache(maxsize=64)
def tiny_weights(shape: str, tied: bool, dtype: str, seed: int) -> Mapping[str, np.ndarray]:
    """Weights of the tiny model, read-only."""
    from fakes import tiny

    out = tiny.tiny_weights(model_config(shape, tied, dtype), seed)
    for array in out.values():
        array.flags.writeable = False
    return out


@lru_cache(maxsize=64)
def _clean_model(shape: str, tied: bool, dtype: str, tp: int, seed: int, held: str = "") -> Any:
    from fakes.engine.model import Model
    from fakes.engine.weights import RankWeights

    config = model_config(shape, tied, dtype)
    ranks = [RankWeights(config, rank, tp, dtype, quantisation=held) for rank in range(tp)]
    for rank in ranks:
        rank.load(_checkpoint(tiny_weights(shape, tied, dtype, seed), held).items())
        rank.finalise()
    return Model(config, ranks)


@lru_cache(maxsize=4096)
def clean_answer(
    shape: str, tied: bool, dtype: str, tp: int, seed: int, prompt: tuple[int, ...], n: int, held: str = ""
) -> Expected:
    """Greedy tokens and their logprobs from a clean cache."""
    return greedy(_clean_model(shape, tied, dtype, tp, seed, held), prompt, n)


def greedy(model: Any, prompt: Sequence[int], n: int) -> Expected:
    """`n` tokens of a `fakes.engine.model.Model` from an empty cache, and their logprobs."""
    from fakes.engine.model import log_softmax

    kv, feed = model.empty_kv(), list(prompt)
    tokens: list[int] = []
    logprobs: list[float] = []
    for _ in range(n):
        logits, new = model.forward(feed, kv, last_only=True)
        kv.append(new)
        token = int(logits[-1].argmax())
        tokens.append(token)
        logprobs.append(float(log_softmax(logits[-1])[token]))
        feed = [token]
    return Expected(tuple(tokens), tuple(logprobs))
