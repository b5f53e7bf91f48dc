"""The two sides of a comparison over HTTP calls: a fake in process and in virtual time, and a real server."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from fakes.fronts import inprocess as fake
from fakes.tiny import SHAPES
from fakes.trace import TraceWriter
from fakes.trainer import ExportRegistry
from fakes.world import World
from harness.errors import HarnessError, UsageError
from harness.gate import FaultGate
from real_runs.cleaning import Cleaner
from real_runs.client import HttpClient
from real_runs.comparing import Exchange, exchanges
from real_runs.env import SglangEnv
from real_runs.fuzz.traffic import LivePort, VirtualPort
from real_runs.models import TinyModel
from real_runs.performing import perform
from real_runs.recorder import header, machine_words, scrub, server_spec
from real_runs.replaying import config_of
from real_runs.sequence import Sequence
from real_runs.server import Server

DTYPE = "float32"
"""Tokens are compared exactly at float32 only."""
DEATH_S = 15.0
"""How long an engine gets to die of a call."""
RESETS = 3
"""How often a fresh server is reset: on a crowded machine its first generation may take longer than a call may."""


class Side(Protocol):
    """Performs a sequence on an engine that is clean and holds the weights of seed 0."""

    def perform(self, sequence: Sequence) -> Exchange:
        """The answers, and whether the engine died of it."""
        ...


def tiny(tp: int = 1, model: str = "llama") -> TinyModel:
    """The model that both sides serve: a shape, or a shape and "-tied" for tied heads. UsageError for another."""
    shape, _, tied = model.partition("-")
    if shape not in SHAPES or tied not in ("", "tied"):
        raise UsageError(f"unknown model {model!r}; known: {', '.join(SHAPES)}, each with -tied too")
    return TinyModel(shape, bool(tied), DTYPE, tp)


class FakeSide:
    """A fresh fake of `version` for every sequence. `under()` is entered while it works: a planted defect, for one.

    `bypass`: its /health does not generate. `states` are those that the calls of the last sequence met: how it was
    paused and what it held, and so on.
    """

    def __init__(
        self, version: str, model: TinyModel, under: Callable[[], Any] = nullcontext, *, bypass: bool = True
    ) -> None:
        self._config = msgspec.structs.replace(config_of(header(version, model, "plain")), health_generation=not bypass)
        self._model, self._under = model, under
        self.states: list[str] = []

    def perform(self, sequence: Sequence) -> Exchange:
        """In virtual time."""
        registry, writer = ExportRegistry(), TraceWriter()
        with self._under(), World(seed=0, resolver=registry) as world:
            engine = world.add_engine("e0", self._config, self._model.weights(0), self._model.config)
            gate = FaultGate(writer, lambda: world.now)
            port = VirtualPort(world, fake.Server(world, engine), registry, self._model)
            perform(sequence, port, gate)
            if engine.alive:
                world.sleep(DEATH_S)
            gate.fact("death", {"dead": not engine.alive}, engine="e0", source="probe")
        self.states = port.states
        return exchanges(writer.records)[0]


class RealSide:
    """A server that is brought back to clean weights before every sequence, and started anew when it died.

    `words` are replaced in what it answers: what names this machine.
    """

    def __init__(self, server: Any, model: TinyModel, words: Mapping[str, str]) -> None:
        self._server, self._model, self._words = server, model, dict(words)
        self._cleaner = Cleaner(server, model)
        self.starts = 0

    def perform(self, sequence: Sequence) -> Exchange:
        """Over HTTP, in real time. HarnessError when the server does not come clean."""
        self._clean()
        writer = TraceWriter()
        began = time.monotonic()
        gate = FaultGate(writer, lambda: round(time.monotonic() - began, 4))
        port = LivePort(self._server, self._model)
        perform(sequence, port, gate)
        dropped = any(getattr(record, "error", None) for record in writer.records)
        dead = self._server.wait_dead(DEATH_S) if dropped else not self._server.alive
        gate.fact("death", {"dead": dead}, engine="e0", source="probe")
        port.payloads.release()
        return exchanges(scrub(writer.records, self._words))[0]

    def close(self) -> None:
        """End the server, if it is ours."""
        self._server.stop()

    def _clean(self) -> None:
        if self._server.alive and self._cleaner.reset():
            return
        self.starts += 1
        self._server.start()
        if not any(self._cleaner.reset() for _ in range(RESETS)):
            raise HarnessError("a fresh server does not come clean")


def started(version: str, env: SglangEnv, model: TinyModel, progress: Callable[[str], None]) -> RealSide:
    """A side whose server is started on first use, with a run folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="refitcheck-diff-"))
    spec = replace(server_spec(version, model, "plain"), health_generation=False)
    server = Server(env, spec, folder, progress)
    side = RealSide(server, model, machine_words(env, model))
    close = side.close

    def closed() -> None:
        close()
        shutil.rmtree(folder, ignore_errors=True)

    side.close = closed  # type: ignore[method-assign]
    return side


class Attached:
    """A server that somebody else runs, in the place of one that is ours: it is never started nor ended."""

    def __init__(self, url: str, version: str, model: TinyModel) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.port is None or parts.hostname is None:
            raise UsageError(f"{url}: not a URL with a port")
        self.client = HttpClient(parts.port, parts.hostname)
        self.spec = server_spec(version, model, "plain")
        self._url = url

    @property
    def alive(self) -> bool:
        """Whether it answers."""
        return self.client.request("GET", "model_info", timeout_s=5.0).ending == "reply"

    def wait_dead(self, timeout_s: float) -> bool:
        """Whether it stopped answering within so many seconds."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if self.client.request("GET", "model_info", timeout_s=2.0).ending == "refused":
                return True
            time.sleep(0.2)
        return False

    def start(self) -> None:
        """It cannot be."""
        raise HarnessError(f"{self._url} is gone or does not come clean, and is not ours to start")

    def stop(self) -> None:
        """It is not ours."""


def attached(url: str, version: str, model: TinyModel) -> RealSide:
    """The server at `url`; it must serve the tiny model of seed 0 from our cache, at float32."""
    words = {model.folder(seed): f"MODEL{seed}" for seed in (0, 1, 2)}
    return RealSide(Attached(url, version, model), model, words)
