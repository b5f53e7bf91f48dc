"""What a run on GPUs needs of the machine, looked at before a server is started: each finding is one line."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from real_runs.causes import chained
from real_runs.env import cache_dir
from real_runs.server import base_environment

SHM = Path("/dev/shm")
NEEDED_SHM = 64 * 2**20
NEEDED_DISK = 2**30
NEEDED_GPU = 8 * 2**30
_TIMEOUT_S = 120.0
# Versions from metadata: importing SGLang itself takes half a minute and compiles.
_ASK = (
    "import importlib.metadata as m, json; names = ('sglang', 'torch', 'triton', 'transformers', 'sglang-kernel');"
    "found = {d.metadata['Name'].lower(): d.version for d in m.distributions() if d.metadata['Name']};"
    "import torch; print(json.dumps([{n: found.get(n) for n in names}, torch.cuda.device_count(), torch.version.cuda]))"
)
_QUERY = ["nvidia-smi", "--query-gpu=name,driver_version,memory.free", "--format=csv,noheader,nounits"]


@dataclass(frozen=True)
class Machine:
    """What is to run: `python` with the packages of `site` serves `version` at `tp` on `gpus` (all when empty)."""

    python: Path
    site: str
    version: str
    gpus: tuple[int, ...] = ()
    tp: int = 1


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    said: str

    @property
    def line(self) -> str:
        """gpus: 1 found, tp 2 needs 2."""
        return f"{self.what}: {self.said}"


Run = Callable[[Sequence[str], dict[str, str]], str]
"""(command, environment) -> what it printed; OSError or CalledProcessError, with stderr."""


def run_command(command: Sequence[str], environment: dict[str, str]) -> str:
    """The real one."""
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def preflight(machine: Machine, run: Run = run_command) -> list[Finding]:
    """Every finding, good or bad; costs some seconds, since torch is imported."""
    return [*_gpus(machine, run), *_interpreter(machine, run), *_trainer(machine), _ports(), *_room()]


def _gpus(machine: Machine, run: Run) -> Iterator[Finding]:
    try:
        lines = [line.split(", ") for line in run(_QUERY, dict(os.environ)).splitlines() if line.strip()]
        cards = [(name, driver, int(free) * 2**20) for name, driver, free in lines]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        yield Finding("driver", False, f"nvidia-smi does not answer ({_short(error)})")
        return
    drivers = sorted({driver for _, driver, _ in cards})
    yield Finding("driver", bool(cards), ", ".join(drivers) or "nvidia-smi lists no GPU")
    wanted = machine.gpus or tuple(range(machine.tp))
    missing = [number for number in wanted if number >= len(cards)]
    said = f"{len(cards)} found" + (f" ({', '.join(sorted({name for name, _, _ in cards}))})" if cards else "")
    if missing or len(wanted) < machine.tp:
        yield Finding("gpus", False, f"{said}; tp {machine.tp} on GPU {', '.join(map(str, wanted))} needs more")
        return
    yield Finding("gpus", True, said)
    full = [f"GPU {n} has {cards[n][2] / 2**30:.1f} GiB free" for n in wanted if cards[n][2] < NEEDED_GPU]
    yield Finding("gpu memory", not full, "; ".join(full) or f"at least {NEEDED_GPU >> 30} GiB free on each")


def _interpreter(machine: Machine, run: Run) -> Iterator[Finding]:
    if not machine.python.exists():
        yield Finding("python", False, f"{machine.python} does not exist")
        return
    if machine.site and not (Path(machine.site) / "sglang").is_dir():
        yield Finding("site", False, f"{machine.site} has no sglang")
        return
    environment = base_environment() | ({"PYTHONPATH": machine.site} if machine.site else {})
    try:
        found, count, cuda = json.loads(
            run([str(machine.python), "-W", "ignore", "-c", _ASK], environment).splitlines()[-1]
        )
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        yield Finding("python", False, f"{machine.python} cannot import torch ({_short(error)})")
        return
    said = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if found.get("sglang") != machine.version:
        yield Finding(
            "versions", False, f"sglang {found.get('sglang') or 'is not installed'}, asked for {machine.version}"
        )
        return
    yield Finding("versions", True, said)
    yield Finding("cuda", bool(cuda and count), f"torch is built for CUDA {cuda}, sees {count} GPUs")
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    yield Finding("nvcc", nvcc is not None, nvcc or "not found: SGLang compiles kernels when it starts")


def _trainer(machine: Machine) -> Iterator[Finding]:
    try:
        import torch
    except ImportError as error:
        yield Finding("trainer", False, f"this process has no torch ({error})")
        return
    count = torch.cuda.device_count()
    said = f"torch {torch.__version__} in this process sees {count} GPUs"
    yield Finding("trainer", count >= max((*machine.gpus, machine.tp - 1)) + 1, said)


def _ports() -> Finding:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError as error:
        return Finding("ports", False, f"none can be bound on 127.0.0.1 ({error.strerror})")
    return Finding("ports", True, "loopback can be bound")


def _room() -> Iterator[Finding]:
    for what, folder, needed in (("shared memory", SHM, NEEDED_SHM), ("cache", cache_dir(), NEEDED_DISK)):
        there = next((path for path in (folder, *folder.parents) if path.is_dir()), Path("/"))
        free = shutil.disk_usage(there).free
        yield Finding(what, free >= needed, f"{free / 2**30:.2f} GiB free in {folder}, {needed / 2**30:.2f} needed")


def _short(error: Exception) -> str:
    """The last line of what a command said, else the error with its chain of causes."""
    said = str(getattr(error, "stderr", "") or "").strip().splitlines()
    return said[-1][:200] if said else chained(error)
