"""The supervisor of one real SGLang server: start, ready, death, end, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from real_runs import shared_memory
from real_runs.client import HttpClient
from real_runs.env import SglangEnv
from real_runs.refitcheck_sglang_shim import TENSOR_CUDA_SWITCH

READY_LINE = "The server is fired up and ready to roll!"
START_TIMEOUT_S = 600.0  # a start needs 25 s of a core, a crowded machine gives it late
HIGHEST_PORT = 55535  # 0.5.12.post1 adds 10000 for a port that it does not use, and refuses what is no port
_PORT_TAKEN = re.compile(r"address already in use|Errno 98", re.IGNORECASE)
_CAUSE = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)): ?(.*)$")


class ServerError(Exception):
    """The server did not come up; the message is one line for a person, with the log's path."""


@dataclass(frozen=True)
class ServerSpec:
    """What tells one server from another. `model` is a Hugging Face folder; `extra` are further launch arguments.

    `checker_cuda` switches on the shim's identity for `Tensor.cuda()`, without which the weight checker cannot compare
    on a CPU. Without `health_generation` /health answers at once, where it otherwise generates and takes a second.
    """

    version: str
    model: Path
    tp: int = 1
    dtype: str = "bfloat16"
    api_key: str | None = None
    admin_api_key: str | None = None
    checker_cuda: bool = False
    health_generation: bool = True
    extra: tuple[str, ...] = ()

    @property
    def weight_version(self) -> str:
        """The version that it starts with."""
        if "--weight-version" in self.extra:
            return self.extra[self.extra.index("--weight-version") + 1]
        return "default"

    def device_arguments(self) -> list[str]:
        """What belongs to the device."""
        return [
            *("--device", "cpu", "--attention-backend", "torch_native", "--mem-fraction-static", "0.3"),
            *("--disable-cuda-graph", "--disable-overlap-schedule"),
        ]

    def arguments(self, port: int) -> list[str]:
        """The command line after `python -m sglang.launch_server`: small pools, so that a start is cheap."""
        keys = [
            *(["--api-key", self.api_key] if self.api_key else []),
            *(["--admin-api-key", self.admin_api_key] if self.admin_api_key else []),
        ]
        return [
            *("--model-path", str(self.model), "--host", "127.0.0.1", "--port", str(port)),
            *("--skip-tokenizer-init", "--dtype", self.dtype, "--tp-size", str(self.tp)),
            *("--max-total-tokens", "2048", "--max-running-requests", "8", "--log-level", "info"),
            *self.device_arguments(),
            "--sleep-on-idle",  # an idle scheduler would keep a core busy; it wakes at the next message
            *keys,
            *self.extra,
        ]

    def environment(self) -> dict[str, str]:
        """Ours without PYTHON*, plus what a CPU server needs; one core per rank at tp 2."""
        clean = base_environment()
        clean |= {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        clean |= {"OMP_NUM_THREADS": "1"}
        if self.tp > 1:
            cores = sorted(os.sched_getaffinity(0))
            clean["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(cores[rank % len(cores)]) for rank in range(self.tp))
        if self.checker_cuda:
            clean[TENSOR_CUDA_SWITCH] = "1"
        if not self.health_generation:
            clean["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] = "false"
        return clean


def base_environment() -> dict[str, str]:
    """Our environment without what steers our own interpreter."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def free_port() -> int:
    """A port that was free a moment ago; who uses it must be ready to try again."""
    with contextlib.ExitStack() as taken:
        while True:
            probe = taken.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            if port <= HIGHEST_PORT:
                return port


class Server:
    """One server and its later incarnations. Not thread-safe; `client` may be used from any thread."""

    def __init__(
        self, env: SglangEnv, spec: ServerSpec, folder: Path, progress: Callable[[str], None] = lambda line: None
    ) -> None:
        self.env, self.spec, self.folder, self.progress = env, spec, folder, progress
        self.incarnation = 0
        self.starts_s: list[float] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._minder: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._pids: set[int] = set()
        self._shm: set[str] = set()
        self._client: HttpClient | None = None
        self._log_path = folder / "server-0.log"
        self.command: list[str] = []
        self._given_up = False

    @property
    def client(self) -> HttpClient:
        """The way in to the current incarnation; it stays after a death, when every call is refused."""
        if self._client is None:
            raise ServerError("the server was never started")
        return self._client

    @property
    def alive(self) -> bool:
        """Whether the HTTP process exists; a dead scheduler may still be inside its last seconds."""
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """How the HTTP process ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def log_path(self) -> Path:
        """The log of the current incarnation."""
        return self._log_path

    def log_text(self, start: int = 0) -> str:
        """The log from byte `start` on."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(start)
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def cause_of_death(self) -> str:
        """The last exception line of the log, "IndexError: list index out of range"; at tp 2 it may be a peer's."""
        for line in reversed(self.log_text().splitlines()):
            found = _CAUSE.match(line.strip())
            if found:
                return line.strip()[:300]
        return ""

    def start(self) -> None:
        """Start a new incarnation and wait until it serves. ServerError when it does not."""
        self.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(3):
            self.incarnation += 1
            began = time.monotonic()
            self._launch(free_port())
            try:
                self._wait_ready(began)
            except ServerError:
                text = self.log_text()
                self.stop()
                if _PORT_TAKEN.search(text) and attempt < 2 and not self._given_up:
                    continue
                raise
            self._note_resources()
            self.starts_s.append(round(time.monotonic() - began, 1))
            self.progress(f"sglang {self.spec.version} tp {self.spec.tp}: serving after {self.starts_s[-1]} s")
            return

    def adopt(self, other: Server) -> None:
        """The next incarnation is what `other`, of the same spec, has started: `other` has no server afterwards."""
        self.stop()
        self.incarnation += 1
        self._process, other._process = other._process, None
        self._minder, other._minder = other._minder, None
        self._log, other._log = other._log, None
        self._client, self._log_path, self.command = other._client, other._log_path, other.command
        self.starts_s += other.starts_s
        self._note_resources()

    def stop(self) -> None:
        """End the whole process group and remove what it leaves in shared memory. Harmless when nothing runs."""
        process = self._process
        if process is not None:
            self._note_resources()
            self._process = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            shared_memory.wait_gone(process.pid, 60.0)
        if self._minder is not None and self._minder.stdin is not None:
            with contextlib.suppress(OSError):
                self._minder.communicate(b"done\n", timeout=60)
            self._minder = None
        if self._log is not None:
            self._log.close()
            self._log = None
        shared_memory.remove(self._shm, self._pids)
        self._shm, self._pids = set(), set()

    def give_up(self) -> None:
        """From another thread: a start under way fails soon. The process group is killed, nothing else."""
        self._given_up = True
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def wait_dead(self, timeout_s: float) -> bool:
        """Whether the HTTP process ends within `timeout_s` seconds."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _launch(self, port: int) -> None:
        self._log_path = self.folder / f"server-{self.incarnation}.log"
        self._log = self._log_path.open("wb")
        self.command = [str(self.env.python), "-W", "ignore", "-m", "sglang.launch_server", *self.spec.arguments(port)]
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self.spec.environment(),
            cwd=self.folder,
            start_new_session=True,
        )
        minder = Path(__file__).with_name("minder.py")
        self._minder = subprocess.Popen(
            [sys.executable, "-E", str(minder), str(self._process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._client = HttpClient(port)

    def _wait_ready(self, began: float) -> None:
        while time.monotonic() - began < START_TIMEOUT_S:
            if not self.alive:
                raise ServerError(
                    f"sglang {self.spec.version} ended at start with code {self.returncode}: "
                    f"{self.cause_of_death() or self._last_line()} (log: {self.log_path})"
                )
            if READY_LINE in self.log_text():
                return
            time.sleep(0.2)
        raise ServerError(
            f"sglang {self.spec.version} was not ready after {START_TIMEOUT_S:.0f} s (log: {self.log_path})"
        )

    def _last_line(self) -> str:
        lines = [line for line in self.log_text().splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else "it wrote nothing"

    def _note_resources(self) -> None:
        if self._process is not None:
            pids = shared_memory.group_pids(self._process.pid)
            self._pids |= pids
            self._shm |= shared_memory.mapped(pids)
