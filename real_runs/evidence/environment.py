"""What a real run notes of its machine while it runs: versions, GPUs, command lines, sources, the logs of its servers.

Everything is asked of the machine itself; what it does not tell is null. Paths of the machine are replaced by names
(`<cache>`, `<site>`, ...), which changes no meaning, since none of them exists anywhere else.
"""

from __future__ import annotations

import json
import lzma
import os
import platform
import subprocess
import sys
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from real_runs.env import cache_dir
from real_runs.server import Server, base_environment
from real_runs.validation import sources_hash

NAME = "environment.json"
MAX_LOG = 4 * 2**20  # bytes of one log that are kept: its end tells why a server died
_PREFIXES = ("SGLANG_", "NCCL_", "CUDA_", "TORCH_", "OMP_", "HF_", "TRANSFORMERS_", "TRITON_", "TVM_")
_PACKAGES = (
    "import importlib.metadata as m, json, sys; found = [d for d in m.distributions() if d.metadata['Name']];"
    "print(json.dumps([sys.version.split()[0], sorted({d.metadata['Name'] + '==' + d.version for d in found})]))"
)
_TORCH = (
    "import json, torch; c = torch.cuda.is_available(); n = torch.cuda.nccl.version() if c else None;"
    "print(json.dumps({'torch': torch.__version__, 'cuda': torch.version.cuda,"
    " 'nccl': '.'.join(map(str, n)) if n else None, 'cudnn': torch.backends.cudnn.version() if c else None}))"
)
_GPUS = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,vbios_version", "--format=csv,noheader"]


class EvidenceFolder:
    """Collects in a folder: `started` for every incarnation, `close` when the run is over.

    `provides` is the lane's: which facts it gave, without which its histories cannot be judged again.
    """

    def __init__(self, folder: Path, provides: Collection[str] = ()) -> None:
        self._folder, self._provides = folder, sorted(provides)
        self._servers: list[dict[str, Any]] = []
        self._logs: list[Path] = []
        self._first: Server | None = None
        self._began = datetime.now(UTC).isoformat(timespec="seconds")

    def started(self, server: Server) -> None:
        """A server serves."""
        self._first = self._first or server
        self._logs.append(server.log_path)
        self._servers.append(
            {
                "log": f"logs/{len(self._logs):03d}.log.xz",
                "argv": server.command,
                "start_s": server.starts_s[-1] if server.starts_s else None,
                "environment": _interesting(server.spec.environment()),
            }
        )

    def close(self) -> None:
        """Write environment.json and the logs, before the servers' own folders go. OSError where it cannot."""
        names = self._names()
        logs = self._folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for number, path in enumerate(self._logs, 1):
            text = _tail(path)
            for long, short in names.items():
                text = text.replace(long, short)
            (logs / f"{number:03d}.log.xz").write_bytes(lzma.compress(text.encode()))
        found = json.dumps(self._facts(), indent=1, sort_keys=True)
        for long, short in names.items():
            found = found.replace(long, short)
        (self._folder / NAME).write_text(found + "\n", encoding="utf-8")

    def _facts(self) -> dict[str, Any]:
        python = str(self._first.env.python) if self._first else sys.executable
        environment = self._first.spec.environment() if self._first else base_environment()
        version, packages = _ask([python, "-c", _PACKAGES], environment) or (None, None)
        return {
            "began": self._began,
            "argv": sys.argv,
            "provides": self._provides,
            "refitcheck": {"sources": sources_hash(), **git_state(Path(__file__).parent)},
            "trainer": {"python": platform.python_version(), **(_ask([sys.executable, "-c", _TORCH], None) or {})},
            "engine": {
                "python": version,
                "packages": packages,
                **(_ask([python, "-W", "ignore", "-c", _TORCH], environment) or {}),
            },
            "machine": {
                "system": platform.system(),
                "kernel": platform.release(),
                "processor": platform.machine(),
                "cores": os.cpu_count(),
                "gpus": [dict(zip(("name", "driver", "memory", "vbios"), row, strict=False)) for row in _gpus()],
            },
            "servers": self._servers,
        }

    def _names(self) -> dict[str, str]:
        """Paths of this machine -> what stands for them, the longest first."""
        found = {
            str(cache_dir()): "<cache>",
            str(Path(__file__).resolve().parents[2]): "<refitcheck>",
            str(Path.cwd()): "<cwd>",
            str(self._folder.resolve()): "<evidence>",
            str(Path.home()): "<home>",
            sys.prefix: "<python>",
        }
        if self._first is not None:
            found[str(self._first.env.folder)] = "<site>"
            found[str(self._first.env.python.parent)] = "<python>/bin"
        known = {long: short for long, short in found.items() if len(long) > 5}
        return dict(sorted(known.items(), key=lambda item: -len(item[0])))


def git_state(folder: Path) -> dict[str, Any]:
    """Revision and dirty flag of the checkout that `folder` belongs to; null where there is none."""
    try:
        return {"revision": _git(folder, "rev-parse", "HEAD"), "dirty": bool(_git(folder, "status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return {"revision": None, "dirty": None}


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def _ask(command: list[str], environment: Mapping[str, str] | None) -> Any:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
        return json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def _gpus() -> list[list[str]]:
    try:
        done = subprocess.run(_GPUS, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.split(", ") for line in done.stdout.splitlines() if line.strip()]


def _interesting(environment: Mapping[str, str]) -> dict[str, str]:
    """What steers SGLang, CUDA and NCCL; no keys and no tokens."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES) and "TOKEN" not in name and "KEY" not in name
    }


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MAX_LOG))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
