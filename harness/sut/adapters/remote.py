"""The harness's side of a framework: its zygote, its trainer ranks for one scenario, and what came of each command."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, Unsupported, UsageError
from harness.sut.adapters import wire
from harness.sut.adapters.found import located
from harness.sut.adapters.rank import STACK_SIGNAL, line_of_dump
from harness.sut.adapters.start import Zygote, uncounted, zygote_of
from harness.sut.adapters.table import Framework
from harness.sut.protocol import Caps, Fleet, RefitResult
from harness.watchdog import Hung
from harness.words import one_line

GRACE_S = 0.5
"""Real seconds that the other ranks get once one has failed."""
CLOSE_S = 5.0
_NO_GPU = "Torch not compiled with CUDA"
SETUP_S = 60.0
"""Real seconds for a trainer that starts, joining groups included: no time of a refit's."""


class FrameworkFailed(Exception):
    """What a framework raised in one of its processes; the class that is raised has the original's name."""


class RankDied(Exception):
    """A trainer process ended: it was killed, or it left."""


class RemoteSut:
    """One framework as a system under test.

    Options (`--sut-option`): `checkout` is the folder that holds it (else it is the installed one); others are the
    driver's own, in `Framework.settings`.
    """

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self.options = frozenset({*framework.settings, "checkout"})
        """Names that `--sut-option` may give it."""
        self._told: set[str] = set()
        self._ranks: list[_Rank] = []
        self._folder: Path | None = None
        self._fleet: Fleet | None = None
        self._state: tuple[Mapping[str, Any], str] | None = None

    def capabilities(self) -> Caps:
        """The table's."""
        return self.framework.caps

    def check_options(self, options: Mapping[str, str]) -> None:
        """UsageError for a checkout that is none of this framework's."""
        checkout = options.get("checkout", "")
        try:
            if checkout:
                located(self.framework, checkout)
        except HarnessError as error:
            raise UsageError(f"--sut-option checkout={checkout}: {error}") from error
        except OSError as error:
            raise UsageError(f"--sut-option checkout={checkout}: {error.strerror or error}") from error
        except RuntimeError as error:  # of pathlib: links that lead to each other, a home that nobody has
            raise UsageError(f"--sut-option checkout={checkout}: {error}") from error

    def setup(self, fleet: Fleet) -> None:
        """Start the trainer. Unsupported where the framework is not installed, HarnessError where it cannot be used."""
        self._fleet = fleet
        self._path = located(self.framework, str(fleet.options.get("checkout", "")))  # first: no lane mends its lack
        self._urls = [str(endpoint.url) for endpoint in fleet.endpoints]
        with uncounted():
            self._start()

    def set_weights(self, state: Mapping[str, Any], version: str) -> None:
        """The policy's weights, in every rank; strided where the scenario's trainer exports views."""
        assert self._fleet is not None
        views = getattr(self._fleet.trainer, "transposed", False)
        self._state = ({name: strided(array) if views else array for name, array in state.items()}, str(version))
        if any(rank.busy for rank in self._ranks):
            self._end()  # a job whose ranks wait for each other for ever is started again
            with uncounted():
                self._start()
        else:
            self._all("set_weights", *self._state)

    def refit(self, deadline_s: float) -> RefitResult:
        """The framework's own refit. What it raised is raised under its own name."""
        self._all("refit")
        assert self._state is not None
        return RefitResult(self._state[1])

    def phase(self, name: str, deadline_s: float = 60.0) -> None:
        """ "train" or "rollout"."""
        self._all("phase", name)

    def close(self) -> None:
        """End the trainer."""
        self._end()

    def _start(self) -> None:
        fleet, framework = self._fleet, self.framework
        assert fleet is not None
        options = {name: str(value) for name, value in fleet.options.items() if name in self.options}
        zygote = zygote_of(framework, fleet.version, self._path)
        self._folder = Path(tempfile.mkdtemp(prefix="refitcheck-ranks-"))
        count = trainer_ranks(framework, fleet)
        for number in range(count):
            self._ranks.append(self._forked(zygote, number, count, options))
        try:
            self._all("setup", limit_s=SETUP_S)
            if self._state is not None:
                self._all("set_weights", *self._state)
        except (FrameworkFailed, RankDied) as error:
            self._end()
            raise HarnessError(f"{framework.name}: its setup raised {one_line(str(error))}") from error

    def _forked(self, zygote: Zygote, number: int, count: int, options: Mapping[str, str]) -> _Rank:
        assert self._folder is not None
        assert self._fleet is not None
        scale = float(self._fleet.options.get("time_scale", 1.0))
        engines = [
            {"name": e.name, "url": url, "tp": e.tp, "gpus": list(e.gpu_ids), "incarnation": e.incarnation}
            for e, url in zip(self._fleet.endpoints, self._urls, strict=True)
        ]
        about = {
            "rank": number,
            "ranks": count,
            "engines": engines,
            "version": self._fleet.version,
            "folder": str(self._folder),
            "settings": {**self.framework.settings, **options},
        }
        given = {
            "about": about,
            "environment": {"RANK": str(number), "WORLD_SIZE": str(count), "LOCAL_RANK": str(number)},
            "log": str(self._folder / f"rank{number}.log"),
            "stack": str(self._folder / f"rank{number}.stack"),
            "scale": scale,
        }
        return _Rank(*zygote.fork(given), Path(str(given["log"])), Path(str(given["stack"])))

    def _all(self, name: str, *arguments: Any, limit_s: float | None = None) -> list[Any]:
        """A command for every rank; the first failure is raised, once the others have had a moment."""
        for rank in self._ranks:
            rank.send((name, *arguments))
        try:
            return self._gathered(limit_s)
        except Hung as hung:
            where = self._waits_in()
            self._end()  # nobody closes a client that hung
            raise Hung(_seconds(hung), where, True) from None

    def _gathered(self, limit_s: float | None) -> list[Any]:
        values: dict[int, Any] = {}
        failed: Exception | None = None
        until = None if limit_s is None else time.monotonic() + limit_s
        while any(rank.busy for rank in self._ranks):
            waiting = {rank.channel: (number, rank) for number, rank in enumerate(self._ranks) if rank.busy}
            left = None if until is None else max(0.0, until - time.monotonic())
            ready, _, _ = select.select(list(waiting), [], [], left)
            if not ready:
                break
            for channel in ready:
                number, rank = waiting[channel]
                try:
                    values[number] = rank.answer(self.framework.name)
                    self._tell(rank.undeclared)
                except (FrameworkFailed, RankDied) as error:
                    if failed is None:
                        failed, until = error, time.monotonic() + GRACE_S
        if failed is not None:
            raise failed
        if any(rank.busy for rank in self._ranks):
            raise RankDied(f"no answer after {limit_s:g} s; it waits in {self._waits_in()}")
        return [values[number] for number in sorted(values)]

    def _tell(self, calls: Sequence[str]) -> None:
        """A call that the framework's own interface does not declare is a record, once."""
        for call in calls:
            if call not in self._told and self._fleet is not None:
                self._told.add(call)
                self._fleet.record("undeclared", 0, {"call": call})

    def _waits_in(self) -> str:
        told = [rank.waits_in() for rank in self._ranks if rank.busy]
        return next((text for text in told if text), "its own code")

    def _end(self) -> None:
        ranks, self._ranks = self._ranks, []
        for rank in ranks:
            rank.end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def trainer_ranks(framework: Framework, fleet: Fleet) -> int:
    """How many trainer processes. Unsupported where the scenario has one without an engine and the framework never, and
    for engines of a size that it does not drive."""
    if framework.tp and any(endpoint.tp != framework.tp for endpoint in fleet.endpoints):
        raise Unsupported(f"{framework.name} drives engines of tensor parallel size {framework.tp} only")
    if framework.ranks == "one":
        return 1
    asked = int(getattr(fleet.trainer, "ranks", 1))
    gpus = sum(endpoint.tp for endpoint in fleet.endpoints)
    if framework.ranks == "tp" and asked > gpus:
        raise Unsupported(f"{framework.name} has no trainer rank without an engine")
    return max(asked, gpus) if {"tensor", "ipc"} & framework.transports else asked


def strided(array: Any) -> Any:
    """The same values as a view of transposed memory; as they are, below two dimensions."""
    import numpy as np

    return np.asfortranarray(array)


class _Rank:
    """One trainer process."""

    def __init__(self, pid: int, channel: socket.socket, log: Path, stack: Path) -> None:
        self.pid, self.channel, self._log, self._stack = pid, channel, log, stack
        self.busy = False
        self.undeclared: list[str] = []
        self._gone = False

    def send(self, command: tuple[Any, ...]) -> None:
        """Nothing to one that is gone: its answer says so."""
        self.busy = True
        with contextlib.suppress(wire.Ended):
            wire.send_command(self.channel, command)

    def answer(self, framework: str) -> Any:
        """FrameworkFailed, under its own name; RankDied; Unsupported for what only the shim lacks."""
        self.busy = False
        try:
            reply = wire.receive_reply(self.channel)
        except wire.Ended:
            self._gone = True
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines() if self._log.exists() else []
            last = f": {lines[-1]}" if lines else ""
            raise RankDied(f"a trainer process of {framework} ended{last}") from None
        self.undeclared = list(reply.get("undeclared", []))
        if reply.get("lacking"):
            raise HarnessError(f"{framework} asks for {', '.join(reply['lacking'])}, which the sglang shim lacks")
        if reply["ok"]:
            return reply["value"]
        if _NO_GPU in str(reply["error"]):
            raise HarnessError(
                f"{framework} asks for a GPU in {reply['where']}: its driver here has no stand-in for that"
            )
        kind = type(str(reply["type"]), (FrameworkFailed,), {})
        if reply["type"] == "Unsupported":
            raise Unsupported(str(reply["error"]))
        raise kind(f"{reply['error']} (in {reply['where']})" if reply["where"] else str(reply["error"]))

    def waits_in(self) -> str:
        """Its innermost line; "" when it does not say."""
        if self._gone:
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, STACK_SIGNAL)
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            if self._stack.exists():
                text = line_of_dump(self._stack.read_text(encoding="utf-8", errors="replace"))
                if text:
                    return text
            time.sleep(0.02)
        return ""

    def end(self) -> None:
        """Close in bounded time, then kill its group."""
        if not self.busy and not self._gone:
            self.send(("close",))
            select.select([self.channel], [], [], CLOSE_S)
        self.channel.close()
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)


def _seconds(hung: Hung) -> float:
    words = str(hung).split()
    with contextlib.suppress(ValueError, IndexError):
        return float(words[3])
    return 0.0
