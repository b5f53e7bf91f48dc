"""Megatron jobs: trainer ranks in the environment of megatron-bridge, and the orders that they take.

One process imports megatron-bridge and lives as long as this one; ranks are forked from it. All talk over socket pairs:
nothing listens, and whoever is forked ends when its peer here is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fakes.tiny import NUMPY_DTYPES, write_model

IMPORT_S = 300.0
ORDER_S = 60.0
"""Real seconds for one order: milliseconds on an idle machine."""
_HERE = Path(__file__).parent
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A process with threads must not be forked."""


class JobFailed(Exception):
    """A rank of the job raised, ended or did not answer. One line."""


class Channel:
    """Orders to one process as lines of JSON, and what it says: lines, each with the bytes that it announces."""

    def __init__(self, connection: socket.socket, who: str) -> None:
        self.who = who
        self.socket = connection
        self._data = b""

    def tell(self, op: str, **about: Any) -> None:
        """An order. JobFailed when nobody is there."""
        try:
            self.socket.sendall(json.dumps({"op": op, **about}).encode() + b"\n")
        except OSError as error:
            raise JobFailed(f"{self.who} is gone: {error.strerror or error}") from error

    def hear(self, timeout_s: float) -> dict[str, Any]:
        """The next answer; announced bytes are its "data". JobFailed for an error, an end, and for none in time."""
        until = time.monotonic() + timeout_s
        while b"\n" not in self._data:
            self._more(until, timeout_s)
        line, _, self._data = self._data.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("error"):
            raise JobFailed(f"{self.who}: {answer['error']}")
        size = int(answer.get("size", 0))
        while len(self._data) < size:
            self._more(until, timeout_s)
        answer["data"], self._data = self._data[:size], self._data[size:]
        return answer

    def _more(self, until: float, timeout_s: float) -> None:
        try:
            self.socket.settimeout(max(until - time.monotonic(), 0.001))
            part = self.socket.recv(1 << 20)
        except TimeoutError:
            raise JobFailed(f"{self.who} has not answered within {timeout_s:g} s") from None
        except OSError as error:
            raise JobFailed(f"{self.who} is gone: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(OSError):
                self.socket.settimeout(None)
        if not part:
            raise JobFailed(f"{self.who} ended")
        self._data += part


class Host:
    """The process that has imported megatron-bridge. JobFailed, in one line, when it cannot."""

    def __init__(self, python: Path, script: Path = _HERE / "bridge_host.py") -> None:
        self.python = python
        self.folder = Path(tempfile.mkdtemp(prefix="refitcheck-megatron-"))
        ours, theirs = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with theirs:
            self._process = subprocess.Popen(
                [str(python), "-W", "ignore", str(script), str(theirs.fileno()), str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**environment, **_ONE_THREAD, "HF_HUB_OFFLINE": "1"},
                start_new_session=True,
            )
        self._channel = Channel(ours, "the process that imports megatron-bridge")
        self._owner = os.getpid()
        try:
            self.versions = str(self._channel.hear(IMPORT_S)["ready"])
        except JobFailed:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether it is this process's own, and still forks."""
        return self._owner == os.getpid() and self._process.poll() is None

    def fork(self, who: str) -> tuple[int, Channel]:
        """A new rank: its process id, and the way to it."""
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._channel.socket, [b"f"], [theirs.fileno()])
            return int(self._channel.hear(ORDER_S)["pid"]), Channel(ours, who)
        except (OSError, JobFailed) as error:
            ours.close()
            raise JobFailed(f"megatron-bridge: its process is gone: {error}") from error
        finally:
            theirs.close()

    def close(self) -> None:
        """End it, and with it every rank."""
        self._channel.socket.close()
        if self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)


class Job:
    """One Megatron job of `world` ranks: `tensor_parallel` x `pipeline_parallel`, the rest data parallel.

    The export is a walk that every rank takes step by step, since there are collectives in it: `ask` sends a rank on
    its next step, `take` waits until it has done it. A rank that is not asked leaves the others waiting for ever.
    """

    def __init__(self, host: Host, world: int, tensor_parallel: int, pipeline_parallel: int) -> None:
        self.host, self.world = host, world
        self.parallel = (tensor_parallel, pipeline_parallel)
        self.broken = ""
        self._pids: list[int] = []
        self._channels: list[Channel] = []
        self._steps = [0] * world
        self._folder = Path(tempfile.mkdtemp(dir=host.folder))
        self._loads = 0
        try:
            for rank in range(world):
                pid, channel = host.fork(f"trainer rank {rank} of megatron-bridge")
                self._pids.append(pid)
                self._channels.append(channel)
            about = {
                "world": world,
                "store": str(self._folder / "store"),
                "tensor_parallel": tensor_parallel,
                "pipeline_parallel": pipeline_parallel,
                "timeout_s": ORDER_S,
            }
            self._all([("start", {"rank": rank, **about}) for rank in range(world)])
        except BaseException:
            self.close()
            raise

    @property
    def fit(self) -> bool:
        """Whether it may go on: nothing failed, and no rank is a step ahead of another."""
        return not self.broken and len(set(self._steps)) == 1

    def load(self, config: Mapping[str, Any], state: Mapping[str, np.ndarray]) -> list[int]:
        """Import a checkpoint and train one step, after which the policy holds `state` (HF names, full arrays of one
        dtype). Returns each rank's parameters.

        The checkpoint holds the negative of `state`, and the step negates every parameter: so what is exported later
        has been in Megatron's own parameters, and no file has it.
        """
        self._loads += 1
        folder = self._folder / f"checkpoint-{self._loads}"
        write_model(folder, config, {name: np.negative(array) for name, array in state.items()})
        about = {"folder": str(folder), "dtype": str(config["torch_dtype"])}
        answers = self._all([("load", about)] * self.world)
        shutil.rmtree(self._folder / f"checkpoint-{self._loads - 1}", ignore_errors=True)
        return [int(answer["parameters"]) for answer in answers]

    def begin(self, rank: int) -> None:
        """The rank makes its iterator; nothing of it runs yet."""
        self._channels[rank].tell("export")
        self._heard(rank, ORDER_S)

    def ask(self, rank: int) -> None:
        """Send a rank on its next step."""
        self._steps[rank] += 1
        self._channels[rank].tell("next")

    def take(self, rank: int, timeout_s: float = ORDER_S) -> tuple[str, np.ndarray] | None:
        """What the rank's step gave: an HF name and the full tensor, None at the end.

        JobFailed, after which the job is over: what the bridge raised, or no answer in `timeout_s` real seconds, with
        the ranks that were not sent on the step.
        """
        answer = self._heard(rank, timeout_s)
        if answer.get("end"):
            return None
        dtype = NUMPY_DTYPES[answer["dtype"]]
        return str(answer["name"]), np.frombuffer(answer["data"], dtype).reshape(answer["shape"])

    def close(self) -> None:
        """End every rank, and remove what lies on disk."""
        self.broken = self.broken or "it was closed"
        for channel in self._channels:
            channel.socket.close()
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._pids.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _all(self, orders: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """One order to every rank, which they do together."""
        for channel, (op, about) in zip(self._channels, orders, strict=True):
            channel.tell(op, **about)
        return [self._heard(rank, ORDER_S) for rank in range(self.world)]

    def _heard(self, rank: int, timeout_s: float) -> dict[str, Any]:
        try:
            return self._channels[rank].hear(timeout_s)
        except JobFailed as error:
            behind = [str(other) for other in range(self.world) if self._steps[other] < self._steps[rank]]
            text = f"{error}; not on its step: trainer ranks {', '.join(behind)}" if behind else str(error)
            self.broken = self.broken or text
            raise JobFailed(text) from None
        except BaseException:
            self.broken = self.broken or f"trainer rank {rank} was not heard to the end"
            raise


_hosts: dict[int, Host] = {}
_jobs: dict[tuple[int, int, int], Job] = {}
KEPT = 2


def job_of(python: Path, world: int, tensor_parallel: int, pipeline_parallel: int) -> Job:
    """The job of this size, as long as it is fit; else a new one, in the environment of `python`."""
    host = _host(python)
    key = (world, tensor_parallel, pipeline_parallel)
    found = _jobs.pop(key, None)
    if found is not None and not found.fit:
        found.close()
        found = None
    if found is None:
        while len(_jobs) >= KEPT:
            _jobs.pop(next(iter(_jobs))).close()
        found = Job(host, *key)
    _jobs[key] = found
    return found


def _host(python: Path) -> Host:
    """The process that ranks are forked from; where it is another's or gone, so are the jobs."""
    host = _hosts.get(os.getpid())
    if host is None or not host.alive or host.python != python:
        end_all()
        host = _hosts[os.getpid()] = Host(python)
    return host


@atexit.register
def end_all() -> None:
    """Leave nothing running, and nothing on disk."""
    for job in _jobs.values():
        if job.host.alive:
            job.close()
    _jobs.clear()
    for host in _hosts.values():
        if host.alive:
            host.close()
    _hosts.clear()
