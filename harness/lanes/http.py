"""The lane over HTTP: each fake engine is a server process of its own, on real time times a scale."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakes.trace import AnyRecord
from harness.errors import HarnessError, UsageError
from harness.gate import FaultGate
from harness.lanes import fake
from harness.lanes.base import Clock, EngineHandle, EngineSpec, Expected
from harness.lanes.loader import refuse_options
from harness.lanes.run_folder import RunFolder, full, no_room, sweep
from harness.lanes.served import Served
from harness.lanes.wire import HttpLink, Wire
from harness.passage import GatedEngine
from harness.proxy_gate import Doors

if TYPE_CHECKING:
    import numpy as np

    from fakes.fronts.launcher import Launcher
    from fakes.transport.gloo_groups import GlooGroups, Peers

TIME_SCALE = 0.1
READY_S = 60.0
PREFIX = "refitcheck-http-"
UNMODELLED = "answers this, the fake does not"
_HEALTH_VARIABLE = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"


class HttpLane:
    """Fake engines behind HTTP. Option `time_scale`: real seconds per second of every duration.

    Facts come from the servers' trace files; all clocks are CLOCK_MONOTONIC since `begin`, divided by the scale.
    """

    name = "http"
    kind = "fake"
    where = "http"
    clock: Clock = "scaled"
    default_tp = 2
    provides = frozenset({*(f"core:{fact}" for fact in fake.CORE_FACTS), "groups"})

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        self.time_scale = _scale(given.pop("time_scale", TIME_SCALE))
        refuse_options(self.name, given, ("time_scale",))
        self._epoch = time.monotonic()
        self._gate: FaultGate | None = None
        self._doors: Doors | None = None
        self._engines: list[HttpEngine] = []
        self._kits: list[Any] = []
        self._traces: list[Path] = []
        self._folder: RunFolder | None = None
        self._wire: Wire | None = None
        self._launcher: Launcher | None = None
        self._torch_launcher: Launcher | None = None
        self._peers: Peers | None = None
        self._with_torch = False

    @property
    def versions(self) -> tuple[str, ...]:
        """The engine versions that can be faked."""
        return fake.known_versions()

    @property
    def epoch(self) -> float:
        """CLOCK_MONOTONIC at second 0 of the scenario."""
        return self._epoch

    def expect(self, needs: Collection[str]) -> None:
        """What the scenario that begins next needs: its servers have torch imported where they will join groups."""
        self._with_torch = "groups" in needs

    def begin(self, gate: FaultGate, seed: int) -> None:
        """A fresh scenario."""
        self.wire, self.launcher  # noqa: B018  # made before the clock starts
        if self._with_torch:
            self.peers.start()
        self._gate = gate
        self._doors = Doors(gate, self.time_scale)
        self._epoch = time.monotonic()

    def finish(self) -> list[list[AnyRecord]]:
        """Stop the scenario's servers and read their traces. HarnessError when one of them broke, and when room was
        wanting: what a client made of that is nobody's verdict.
        """
        from fakes.trainer import shm

        if self._doors is not None:
            self._doors.close()
        for kit in self._kits:
            kit.close()
        for engine in self._engines:
            engine.stop()
        traces = [_read(path) for path in self._traces if path.exists()]
        broken = [told for path in self._traces if (told := _broken(path.with_suffix(".log")))]
        broken += [told for engine in self._engines if (told := engine.lost)]
        for path in self._traces:
            path.unlink(missing_ok=True)
            path.with_suffix(".log").unlink(missing_ok=True)
        self._engines, self._kits, self._traces, self._gate, self._doors = [], [], [], None, None
        if cramped := shm.failures():
            raise HarnessError(f"{cramped[0]}; free some space there: payloads for engines of another process need it")
        if broken:
            raise HarnessError(f"the fake broke: {broken[0]}")
        return traces

    def now(self) -> float:
        """Seconds since `begin`, in the engines' seconds."""
        return (time.monotonic() - self._epoch) / self.time_scale

    def sleep(self, seconds: float) -> None:
        """The engines' seconds."""
        time.sleep(max(0.0, seconds * self.time_scale))

    def engine(self, spec: EngineSpec, name: str = "e0") -> EngineHandle:
        """Start a server and wait until it listens. HarnessError, with the end of its log, when it does not come up."""
        assert self._gate is not None
        engine = HttpEngine(self, self._gate, spec, name)
        self._engines.append(engine)
        return engine

    def trainer(self, ranks: int) -> Any:
        """A trainer kit of threads whose payloads are torch's CPU shared memory, written without torch."""
        from fakes.trainer import TrainerKit

        assert self._gate is not None
        kit = TrainerKit(None, ranks, self._gate.trainer, wire="shm", groups=lambda kit: self.groups())
        self._kits.append(kit)
        return kit

    def weights(self, spec: EngineSpec, seed: int) -> dict[str, np.ndarray]:
        """The same weights as in process."""
        return dict(fake.tiny_weights(spec.shape, spec.tied, spec.dtype, seed))

    def expected(self, spec: EngineSpec, seed: int, prompt: Sequence[int], n: int) -> Expected | None:
        """What the fake's own model answers."""
        return fake.clean_answer(spec.shape, spec.tied, spec.dtype, spec.tp, seed, tuple(prompt), n)

    def close(self) -> None:
        """Stop everything and remove the folder of models and logs."""
        self.finish()
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        for launcher in (self._launcher, self._torch_launcher):
            if launcher is not None:
                launcher.close()
        self._launcher = self._torch_launcher = None
        if self._peers is not None:
            self._peers.close()
            self._peers = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def sync(self) -> None:
        """Return when what the client did over HTTP so far is recorded."""
        if self._doors is not None:
            self._doors.sync()

    # -- what its engines use -----------------------------------------------------------------------------------

    @property
    def doors(self) -> Doors:
        """The gated urls of this scenario."""
        assert self._doors is not None
        return self._doors

    @property
    def wire(self) -> Wire:
        """The event loop that all calls run on."""
        if self._wire is None:
            self._wire = Wire()
        return self._wire

    @property
    def launcher(self) -> Launcher:
        """What servers are forked from."""
        from fakes.fronts.launcher import Launcher

        if self._with_torch:
            self._torch_launcher = self._torch_launcher or Launcher(["torch", "torch.distributed"])
            return self._torch_launcher
        self._launcher = self._launcher or Launcher()
        return self._launcher

    @property
    def peers(self) -> Peers:
        """What the trainer's side of groups is forked from."""
        if self._peers is None:
            from fakes.transport.gloo_groups import Peers

            self._peers = Peers()
        return self._peers

    def groups(self) -> GlooGroups:
        """The side of a trainer in its groups with engines, over real gloo."""
        from fakes.transport.gloo_groups import GlooGroups

        assert self._gate is not None
        return GlooGroups(self._gate.trainer, scale=self.time_scale, peers=self.peers)

    @property
    def folder(self) -> Path:
        """A folder for models, logs and traces; removed by `close`, and by the next run when this one is killed."""
        from fakes.trainer import shm

        if self._folder is None:
            self.sweep()
            self._folder = RunFolder(PREFIX, shm.family())
        return self._folder.path

    def sweep(self) -> None:
        """Remove what killed runs left in TMPDIR and in shared memory."""
        from fakes.trainer import shm

        for family in sweep(PREFIX):
            shm.sweep(family)

    def model(self, spec: EngineSpec) -> Path:
        """The Hugging Face folder that a server of this spec starts with."""
        from fakes.tiny import write_model

        path = self.folder / f"{spec.shape}-{'tied' if spec.tied else 'untied'}-{spec.dtype}-{spec.seed}"
        if not path.exists():
            config = fake.model_config(spec.shape, spec.tied, spec.dtype)
            try:
                write_model(path, config, self.weights(spec, spec.seed))
            except OSError as error:
                raise HarnessError(no_room(self.folder, error)) from error
        return path

    def start(self, spec: EngineSpec, name: str, incarnation: int) -> Served:
        """One server process."""
        from fakes.fronts.started import StartError

        stem = f"{name}-{incarnation}-{len(self._traces)}"
        trace = self.folder / f"{stem}.jsonl"
        self._traces.append(trace)
        options, env = launch_options(spec)
        args = [
            *("--fake-version", spec.version, "--model-path", str(self.model(spec)), "--dtype", spec.dtype),
            *("--tp-size", str(spec.tp), "--time-scale", str(self.time_scale), "--epoch", repr(self._epoch)),
            *(
                "--trace",
                str(trace),
                "--engine-name",
                name,
                "--incarnation",
                str(incarnation),
                "--log-level",
                "warning",
            ),
            *options,
        ]
        try:
            process = self.launcher.start(args, log=trace.with_suffix(".log"), env=env, ready_timeout_s=READY_S)
            return Served(process, trace)
        except StartError as error:
            raise HarnessError(full(self.folder) or str(error)) from error


class HttpEngine(GatedEngine):
    """One server, restarted as the next incarnation."""

    def __init__(self, lane: HttpLane, gate: FaultGate, spec: EngineSpec, name: str) -> None:
        self.spec = spec
        self._lane = lane
        self._payloads: list[Any] = []
        self.lost = ""
        self._process = lane.start(spec, name, 0)
        self._http = HttpLink(lane.wire, self._process, lane.now, lane.time_scale)
        super().__init__(gate, self._http, name)

    @property
    def url(self) -> str:
        """Where it listens; calls there are not recorded."""
        return self._process.url

    @property
    def gated_url(self) -> str:
        """What the client gets: the same for all incarnations, every call there is recorded and may meet a fault."""
        return self._lane.doors.url(self)

    @property
    def alive(self) -> bool:
        """Whether its process lives."""
        return self._process.alive

    def restart(self) -> None:
        """The next incarnation, with the weights that the first began with."""
        self._end()
        self.incarnation += 1
        self._process = self._lane.start(self.spec, self.name, self.incarnation)
        self._http.process = self._process

    def payloads(
        self, named: Sequence[Mapping[str, np.ndarray]], load_format: str | None = "flattened_bucket"
    ) -> list[str]:
        """Tensors in torch's CPU shared memory, one payload per rank; kept until the scenario is over."""
        from fakes.trainer import torch_wire

        make = torch_wire.export_bucket if load_format == "flattened_bucket" else torch_wire.export_list
        made = [make(list(entry.items()), torch_wire.file_share) for entry in named]
        self._payloads += made
        return [export.payload for export in made]

    def _end(self) -> None:
        self._process.stop()
        self.lost = self.lost or self._process.lost

    def stop(self) -> None:
        """End the process and free the payloads."""
        self._end()
        for export in self._payloads:
            export.release()
        self._payloads = []


def launch_options(spec: EngineSpec) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a spec's further options."""
    args: list[str] = []
    env: dict[str, str] = {}
    for name, value in spec.options:
        flag = "--" + name.replace("_", "-")
        if name == "health_generation":
            env[_HEALTH_VARIABLE] = "true" if value else "false"
        elif value is True:
            args.append(flag)
        elif isinstance(value, list | tuple):
            args += [flag, *map(str, value)]
        elif value is not False and value is not None:
            args += [flag, str(value)]
    return args, env


def _scale(value: Any) -> float:
    try:
        scale = float(value)
    except ValueError:
        raise UsageError(f"time_scale {value!r} is not a number") from None
    if not 0 < scale <= 100:
        raise UsageError(f"time_scale {value!r} is not between 0 and 100")
    return scale


def _broken(log: Path) -> str:
    """The last line of a traceback in a server's log: its own bug, which must not look like an answer of an engine."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    asked = next((line for line in text.splitlines() if UNMODELLED in line), "")
    if asked:  # the client was told a 404 that SGLang would not give
        return asked.removeprefix("refitcheck: ")
    _, found, rest = text.partition("Traceback (most recent call last)")
    lines = [line for line in rest.splitlines()[1:] if line and not line[0].isspace()]
    return lines[0] if found and lines else "a traceback in its log" if found else ""


def _read(path: Path) -> list[AnyRecord]:
    """A server's trace; its last line may be torn, since it was killed while it wrote."""
    from harness.history_files import read_records

    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    os.truncate(path, whole)  # needs no room
    return read_records(path) if whole else []
