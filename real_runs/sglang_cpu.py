"""The lane `sglang-cpu`: the real SGLang on this machine's CPU, behind the same gate as the fakes."""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakes.trace import AnyRecord
from harness.errors import HarnessError, Unsupported, UsageError
from harness.gate import FaultGate
from harness.lanes.base import Clock, EngineSpec, Expected
from harness.lanes.loader import refuse_options
from harness.proxy_gate import Doors
from real_runs import env as environments
from real_runs import questions
from real_runs.engine import RealEngine
from real_runs.evidence.environment import EvidenceFolder
from real_runs.expectations import Expectations
from real_runs.models import TinyModel
from real_runs.payloads import TorchPayloads
from real_runs.pool import MAX_LIVE, Held, ServerPool
from real_runs.server import ServerError, ServerSpec

if TYPE_CHECKING:
    import numpy as np

    from fakes.transport.gloo_groups import GlooGroups, Peers

ORACLE = "oracle"
TRIES = 2  # starts of one server that fail, one after the other, before it is given up


class SglangCpuLane:
    """Real servers of any version that has pins, tp 1 and 2, on the real clock; black box, so no facts of source core.

    Engine-side scenarios unless the run says otherwise: a client's faults and hangs cost real seconds.
    Options: `torch_index` (an index with CPU builds of torch), `reserve` (servers started in the background while
    scenarios run: as many as deaths are to come, less the last), `quiet` (no progress on stderr), `evidence` (a folder
    for what a bundle needs beside results and histories: the machine, the command lines, the logs).
    """

    name = "sglang-cpu"
    kind = "sglang"
    where = "real, http, cpu"
    clock: Clock = "real"
    default_tp = 1
    default_side = "engine"
    provides: frozenset[str] = frozenset({"groups"})
    versions: tuple[str, ...] = environments.SUPPORTED
    max_live = MAX_LIVE
    spares = 0
    reserve = 0
    flags: Mapping[str, str] = {
        "weight_version": "--weight-version",
        "watchdog_timeout": "--watchdog-timeout",
        "random_seed": "--random-seed",
    }
    """EngineConfig's names -> SGLang's launch arguments. What is not here cannot be asked of a server of this lane."""
    switches: Mapping[str, str] = {}
    """The same for those that take no value."""
    option_names: tuple[str, ...] = ("evidence", "quiet", "reserve", "torch_index")
    """What `--lane-option` may give."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        self._quiet = is_on(given.pop("quiet", ""))
        evidence = given.pop("evidence", None)
        self._evidence = EvidenceFolder(Path(evidence), self.provides) if evidence else None
        self.configure(given)
        refuse_options(self.name, given, self.option_names)
        self._pool = ServerPool(
            self._environment,
            self.say,
            self.max_live,
            payloads=self.payloads,
            spares=self.spares,
            reserve=self.reserve,
        )
        if self._evidence is not None:
            self._pool.on_start = self._evidence.started
        self._expectations: dict[ServerSpec, Expectations] = {}
        self._oracles: dict[ServerSpec, tuple[Held, int]] = {}
        self._models: dict[tuple[Any, ...], TinyModel] = {}
        self._engines: list[RealEngine] = []
        self._gate: FaultGate | None = None
        self._doors: Doors | None = None
        self._kits: list[Any] = []
        self._peers: Peers | None = None
        self._began = time.monotonic()
        self._failures: Counter[ServerSpec] = Counter()
        self._given_up: dict[ServerSpec, str] = {}

    def configure(self, given: dict[str, Any]) -> None:
        """Take this lane's own options out of `given`. UsageError for one that is wrong."""
        self._torch_index = given.pop("torch_index", None)
        self.reserve = number("reserve", given.pop("reserve", ""))

    def payloads(self) -> TorchPayloads:
        """A fresh maker of payloads."""
        return TorchPayloads()

    def say(self, line: str) -> None:
        """Progress, on stderr."""
        if not self._quiet:
            print(line, file=sys.stderr, flush=True)  # noqa: T201 - for the person who waits

    def expect(self, needs: Collection[str]) -> None:
        """What the scenario that begins next needs: importing torch for a group takes seconds of no scenario's."""
        if "groups" in needs and "groups" in self.provides:
            self.peers.start()

    def begin(self, gate: FaultGate, seed: int) -> None:
        """A scenario begins; the servers of the last one stay."""
        self._gate, self._doors, self._began = gate, Doors(gate), time.monotonic()

    def finish(self) -> list[list[AnyRecord]]:
        """The scenario is over: its servers may be reused."""
        if self._doors is not None:
            self._doors.close()
        for kit in self._kits:
            kit.close()
        for engine in self._engines:
            engine.release()
            self._pool.give_back(engine.held)
        self._engines.clear()
        self._kits.clear()
        self._gate = self._doors = None
        for known in self._expectations.values():
            with _writable_cache():
                known.save()
        return []

    def now(self) -> float:
        """Real seconds since `begin`."""
        return time.monotonic() - self._began

    def sleep(self, seconds: float) -> None:
        """Real seconds."""
        time.sleep(seconds)

    def engine(self, spec: EngineSpec, name: str = "e0") -> RealEngine:
        """A clean real server, started or reused. HarnessError when there is none to be had."""
        if self._gate is None:
            raise HarnessError("an engine was asked for between scenarios")
        self.refuse(spec)
        with _writable_cache():
            model, wanted = self.model(spec), self.server_spec(spec)
        held = self._take(wanted, model, spec.seed)
        if held.fresh and wanted == self.server_spec(spec, plain=True):
            self._foresee(spec, held)
            self._pool.prepare(wanted)
        engine = RealEngine(self, self._gate, spec, name, held)
        self._engines.append(engine)
        return engine

    def trainer(self, ranks: int) -> Any:
        """A trainer kit of threads; its payloads are torch CPU tensors in shared memory, which a real engine opens."""
        from fakes.trainer import TrainerKit

        if self._gate is None:
            raise HarnessError("a trainer was asked for between scenarios")
        kit = TrainerKit(None, ranks, self._gate.trainer, wire="torch", groups=lambda kit: self.groups())
        self._kits.append(kit)
        return kit

    def groups(self) -> GlooGroups:
        """The trainer's side of groups with these engines, over gloo as the engines' own side."""
        from fakes.transport.gloo_groups import GlooGroups

        if self._gate is None:
            raise HarnessError("groups were asked for between scenarios")
        return GlooGroups(self._gate.trainer, peers=self.peers)

    def weights(self, spec: EngineSpec, seed: int) -> dict[str, np.ndarray]:
        """The same weights as on the fakes."""
        return dict(self.model(spec).weights(seed))

    def expected(self, spec: EngineSpec, seed: int, prompt: Sequence[int], n: int) -> Expected | None:
        """What a real server of this spec answers after a clean load and flush: recorded, else asked of an oracle."""
        return self._expectations_of(spec).get(seed, prompt, n)

    def sync(self) -> None:
        """Return when what the client did over HTTP so far is recorded."""
        if self._doors is not None:
            self._doors.sync()

    def close(self) -> None:
        """End every server."""
        self.finish()
        self._oracles.clear()
        if self._evidence is not None and self._pool.starts:
            self._evidence.close()
        if self._peers is not None:
            self._peers.close()
            self._peers = None
        self._pool.close()

    # -- between the lane and its parts -----------------------------------------------------------------------------

    @property
    def doors(self) -> Doors:
        """The gated urls of this scenario."""
        if self._doors is None:
            raise HarnessError("a url was asked for between scenarios")
        return self._doors

    @property
    def peers(self) -> Peers:
        """What the trainer's side of groups is forked from."""
        if self._peers is None:
            from fakes.transport.gloo_groups import Peers

            self._peers = Peers()
        return self._peers

    @property
    def starts(self) -> int:
        """How many servers were started so far."""
        return self._pool.starts

    def model(self, spec: EngineSpec) -> TinyModel:
        """The tiny model of a spec."""
        key = (spec.shape, spec.tied, spec.dtype, spec.tp)
        if key not in self._models:
            self._models[key] = TinyModel(*key)
        return self._models[key]

    def server_spec(self, spec: EngineSpec, *, plain: bool = False) -> ServerSpec:
        """The server of a spec; its seed is loaded, not launched. `plain` leaves the options out."""
        options = {} if plain else dict(spec.options)
        return self.spec_of(
            version=spec.version,
            model=Path(self.model(spec).folder(0)),
            tp=spec.tp,
            dtype=spec.dtype,
            api_key=options.pop("api_key", None),
            admin_api_key=options.pop("admin_api_key", None),
            checker_cuda=bool(options.pop("checker_cuda_shim", False)),
            extra=self._launch_arguments(options),
        )

    def spec_of(self, **fields: Any) -> ServerSpec:
        """A server of this lane's device."""
        return ServerSpec(**fields)

    def label(self, kind: ServerSpec) -> str:
        """Names environment and device: answers of a clean server are kept under it."""
        return environments.key(kind.version)

    def restart(self, held: Held, seed: int) -> None:
        """The next incarnation of a scenario's server. HarnessError when it does not come up."""
        with self._told(held.server.spec):
            self._pool.start(held)
            self._pool.clean(held, seed)

    def _environment(self, version: str) -> environments.SglangEnv:
        return environments.make(version, progress=self.say, torch_index=self._torch_index)

    def _take(self, wanted: ServerSpec, model: TinyModel, seed: int, purpose: str = "") -> Held:
        with self._told(wanted):
            return self._pool.take(wanted, model, seed, purpose)

    @contextmanager
    def _told(self, spec: ServerSpec) -> Iterator[None]:
        """What fails in one line; what failed for good is not tried again for every scenario: that takes minutes."""
        if spec in self._given_up:
            raise HarnessError(self._given_up[spec])
        try:
            with _writable_cache():
                yield
        except environments.EnvUsage as error:
            raise UsageError(str(error)) from error
        except environments.EnvError as error:
            self._given_up[spec] = str(error)
            raise HarnessError(str(error)) from error
        except ServerError as error:
            self._failures[spec] += 1
            if self._failures[spec] == TRIES:
                self._given_up[spec] = str(error)
            raise HarnessError(str(error)) from error
        self._failures[spec] = 0

    def refuse(self, spec: EngineSpec) -> None:
        """Unsupported for an engine that this lane cannot have."""
        if spec.version not in self.versions:
            raise Unsupported(f"no pins for real SGLang {spec.version}; there are {', '.join(self.versions)}")
        if spec.tp not in (1, 2):
            raise Unsupported(f"tp {spec.tp} on a CPU: 1 and 2 are set up")
        if dict(spec.options).get("enable_memory_saver"):
            raise Unsupported("the memory saver needs a GPU")

    def _expectations_of(self, spec: EngineSpec) -> Expectations:
        kind = self.server_spec(spec, plain=True)
        if kind not in self._expectations:
            label = f"{self.label(kind)} {kind.tp} {kind.dtype} {spec.shape} {spec.tied}"
            model = self.model(spec)
            self._expectations[kind] = Expectations(label, model, lambda *asked: self._ask_oracle(kind, model, *asked))
        return self._expectations[kind]

    def _foresee(self, spec: EngineSpec, held: Held) -> None:
        """Ask a server that no scenario has had yet what scenarios will want to know of clean ones."""
        known = self._expectations_of(spec)
        wanted = [question for question in questions.kept(spec) if not known.knows(*question)]
        if not wanted:
            return
        for seed, group in itertools.groupby(sorted(wanted), key=lambda question: question[0]):
            self._load(held, seed)
            for _, prompt, n in group:
                known.add(seed, prompt, n, self._answer(held, prompt, n))
        self.say(f"sglang {spec.version} tp {spec.tp}: {len(wanted)} answers of a clean server")
        try:
            self._pool.clean(held, spec.seed)
        except ServerError as error:
            raise HarnessError(str(error)) from error

    @staticmethod
    def _load(held: Held, seed: int) -> None:
        if not held.cleaner.load(seed):
            raise HarnessError(f"a clean server refuses weights (log: {held.server.log_path})")

    @staticmethod
    def _answer(held: Held, prompt: Sequence[int], n: int) -> Expected:
        outcome = held.cleaner.answer(list(prompt), n)
        if outcome.status != 200:
            raise HarnessError(f"a clean server does not answer: {outcome.text[:200]} (log: {held.server.log_path})")
        pairs = outcome.body["meta_info"]["output_token_logprobs"]
        return Expected(tuple(outcome.body["output_ids"]), tuple(pair[0] for pair in pairs))

    def _ask_oracle(
        self, kind: ServerSpec, model: TinyModel, seed: int, prompt: Sequence[int], n: int
    ) -> Expected | None:
        if kind not in self._oracles:
            self.say(f"sglang {kind.version} tp {kind.tp}: a second server, for what a clean one answers")
            self._oracles[kind] = (self._take(kind, model, seed, ORACLE), seed)
        held, loaded = self._oracles[kind]
        if not held.server.alive:
            del self._oracles[kind]
            self._pool.drop(held)
            return self._ask_oracle(kind, model, seed, prompt, n)
        if loaded != seed:
            self._load(held, seed)
            self._oracles[kind] = (held, seed)
        return self._answer(held, prompt, n)

    def _launch_arguments(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Unsupported for an option that has no launch argument; one that is off is no option."""
        out: list[str] = []
        for name, value in sorted(options.items()):
            if name in self.flags:
                out += [self.flags[name], *map(str, value if isinstance(value, (tuple, list)) else (value,))]
            elif name in self.switches:
                out += [self.switches[name]] if value else []
            elif value not in (False, None):
                raise Unsupported(f"launch option {name}={value} on a server of lane {self.name}")
        return tuple(out)


@contextmanager
def _writable_cache() -> Iterator[None]:
    """UsageError in one line for a cache that cannot be written, or is full."""
    try:
        yield
    except OSError as error:
        where = error.filename or environments.cache_dir()
        raise UsageError(f"{where}: {error.strerror or error} (set REFITCHECK_CACHE to another folder)") from error


def number(name: str, text: Any) -> int:
    """The number that option `name` gives; 0 for nothing. UsageError for anything else."""
    if text in ("", None):
        return 0
    if not str(text).isdecimal():
        raise UsageError(f"--lane-option {name}={text}: not a number")
    return int(text)


def is_on(text: Any) -> bool:
    """Whether an option's text says yes."""
    return str(text).lower() in ("1", "true", "yes", "on")
