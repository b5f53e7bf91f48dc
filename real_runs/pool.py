"""Live servers kept between scenarios: reused by what they are, the longest idle ended when there are too many."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from real_runs.cleaning import Cleaner
from real_runs.env import SglangEnv, cache_dir
from real_runs.models import TinyModel
from real_runs.payloads import TorchPayloads
from real_runs.reserve import Reserve
from real_runs.server import Server, ServerError, ServerSpec
from real_runs.spares import Spares

MAX_LIVE = 3  # 1.3 GB each, twice that at tp 2


@dataclass
class Held:
    """One server of the pool; `used` while a scenario has it, `fresh` until one has had this incarnation."""

    server: Server
    cleaner: Cleaner
    key: tuple[ServerSpec, str]
    used: bool = True
    fresh: bool = False
    last: int = field(default=0)


class ServerPool:
    """Hands out clean servers. `get_env(version)` makes the environment when it is first needed.

    `payloads()` makes what servers are loaded from. `spares` servers of each kind are started ahead of their need;
    `reserve` servers of one kind from `prepare` on. `on_start(server)` is told of every incarnation.
    """

    def __init__(
        self,
        get_env: Callable[[str], SglangEnv],
        progress: Callable[[str], None],
        max_live: int = MAX_LIVE,
        *,
        payloads: Callable[[], TorchPayloads] | None = None,
        spares: int = 0,
        reserve: int = 0,
    ) -> None:
        self._get_env, self._progress, self._max_live = get_env, progress, max_live
        self._payloads = payloads
        self._spares = Spares(self._server, spares)
        self._reserve = Reserve(self._server, reserve)
        self.on_start: Callable[[Server], None] = lambda server: None
        self._held: list[Held] = []
        self._order = itertools.count(1)
        self._folder: Path | None = None
        self._failed = False
        self.starts = 0

    def take(self, spec: ServerSpec, model: TinyModel, seed: int, purpose: str = "") -> Held:
        """A clean server of `spec` that holds the weights of `seed`. ServerError when it cannot be had.

        `purpose` keeps servers apart that must not stand in for each other.
        """
        key = (spec, purpose)
        held = next((h for h in self._held if h.key == key and not h.used), None)
        if held is None:
            self._make_room()
            server = self._server(spec)
            held = Held(server, Cleaner(server, model, spec.weight_version, self._payloads), key)
            self._held.append(held)
        held.used, held.last = True, next(self._order)
        try:
            self.clean(held, seed)
        except BaseException:
            self.drop(held)
            raise
        return held

    def clean(self, held: Held, seed: int) -> None:
        """Reset it, or start it anew where that does not help."""
        if held.server.alive and held.cleaner.reset(seed):
            return
        self.start(held)
        if not held.cleaner.reset(seed):
            self._failed = True
            raise ServerError(f"a fresh server does not come clean (log: {held.server.log_path})")

    def start(self, held: Held) -> None:
        """A new incarnation."""
        self.starts += 1
        try:
            spare = self._reserve.take(held.server.spec) or self._spares.take(held.server.spec)
            if spare is None:
                held.server.start()
            else:
                held.server.adopt(spare)
            held.fresh = True
        except ServerError:
            self._failed = True
            raise
        self.on_start(held.server)

    def prepare(self, spec: ServerSpec) -> None:
        """From now on servers of `spec` are started in the background. Only the first call does anything."""
        self._reserve.begin(spec)

    def give_back(self, held: Held) -> None:
        """The scenario is over."""
        held.used = held.fresh = False

    def drop(self, held: Held) -> None:
        """End it for good."""
        held.server.stop()
        if held in self._held:
            self._held.remove(held)

    def close(self) -> None:
        """End all servers and remove their logs, unless an error named one."""
        self._spares.close()
        self._reserve.close()
        for held in list(self._held):
            self.drop(held)
        if self._folder is not None and not self._failed:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _server(self, spec: ServerSpec) -> Server:
        folder = self._run_folder() / f"server-{next(self._order)}"
        return Server(self._get_env(spec.version), spec, folder, self._progress)

    def _make_room(self) -> None:
        live = [held for held in self._held if held.server.alive]
        idle = sorted((held for held in live if not held.used), key=lambda held: held.last)
        for held in idle[: max(0, len(live) - self._max_live + 1)]:
            self.drop(held)

    def _run_folder(self) -> Path:
        if self._folder is None:
            runs = cache_dir() / "runs"
            runs.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(dir=runs))
        return self._folder
