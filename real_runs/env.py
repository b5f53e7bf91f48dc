"""Environments of real SGLang versions: made by one command, cached, never shared with ours.

An environment is a virtual environment under `<cache>/sglang/`, keyed by version, Python and a hash of everything that
goes into it. It is built in a folder of its own and renamed into place, so that a half-made one is never seen; a file
lock keeps two runs from making the same one at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TextIO

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

TORCH = "torch==2.13.0+cpu"
SUPPORTED = ("0.5.12.post1", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")
NEEDED_BYTES = 3 * 2**30
_SHIM = "refitcheck_sglang_shim"
_CHECK = "import sglang; from sglang.srt.entrypoints.http_server import app; print(sglang.__version__, len(app.routes))"
Progress = Callable[[str], None]


class EnvError(Exception):
    """The environment cannot be made; the message is one line for a person."""


class EnvUsage(EnvError):
    """The person who called us can mend it: an unknown version, a cache that cannot be written, a full disk."""


@dataclass(frozen=True)
class SglangEnv:
    """A ready environment. `python` runs SGLang of `version`; `given` means that the user provided it."""

    version: str
    python: Path
    folder: Path
    given: bool = False


def cache_dir() -> Path:
    """`$REFITCHECK_CACHE`, else the user's cache folder (`$XDG_CACHE_HOME` or ~/.cache) with refitcheck below it."""
    own = os.environ.get("REFITCHECK_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "refitcheck"


def given_env_variable(version: str) -> str:
    """The variable that names a ready environment of `version`: REFITCHECK_SGLANG_ENV_0_5_23."""
    return "REFITCHECK_SGLANG_ENV_" + re.sub(r"[^0-9A-Za-z]", "_", version)


def pins(version: str) -> list[str]:
    """The requirement lines for `version`, without torch and SGLang. EnvError for a version that has none."""
    if version not in SUPPORTED:
        raise EnvUsage(f"no pins for SGLang {version!r}; known versions: {', '.join(SUPPORTED)}")
    files = ["cpu-base.txt"]
    if Version(version) < Version("0.5.20"):
        files.append("cpu-0.5.17.txt")
    if Version(version) < Version("0.5.17"):
        files.append("cpu-0.5.12.post1.txt")
    chosen: dict[str, str] = {}
    for file in files:
        for line in resources.files("real_runs.pins").joinpath(file).read_text("utf-8").splitlines():
            if line and not line.startswith("#"):
                chosen[re.sub(r"[-_.]+", "-", Requirement(line).name).lower()] = line
    return sorted(chosen.values(), key=str.lower)


def _shim_text() -> str:
    return resources.files("real_runs").joinpath(f"{_SHIM}.py").read_text("utf-8")


def key(version: str) -> str:
    """The folder's name: version, device, Python, and a hash of all that goes in."""
    content = "\n".join([TORCH, f"sglang=={version}", *pins(version), _shim_text()])
    digest = hashlib.sha256(content.encode()).hexdigest()[:10]
    return f"{version}-cpu-py{sys.version_info.major}{sys.version_info.minor}-{digest}"


def find(version: str) -> SglangEnv | None:
    """The ready environment of `version`: the user's own, else the cached one, else None."""
    given = os.environ.get(given_env_variable(version))
    if given:
        python = Path(given).expanduser() / "bin" / "python"
        if not python.exists():
            raise EnvUsage(f"{given_env_variable(version)}={given} has no bin/python")
        return SglangEnv(version, python, Path(given), given=True)
    folder = cache_dir() / "sglang" / key(version)
    if not (folder / "ready.json").exists():
        return None
    return SglangEnv(version, folder / "bin" / "python", folder)


def known() -> list[SglangEnv]:
    """Every ready environment of a known version."""
    return [env for version in SUPPORTED if (env := find(version)) is not None]


def make(version: str, *, progress: Progress = print, torch_index: str | None = None) -> SglangEnv:
    """The environment of `version`, made when it is not there yet (a minute or two, 1.5 GB).

    Bytecode is left to the first import: pip would compile 270 MB of source, most of which nothing here imports.

    `torch_index` is an index URL with a CPU build of torch, for machines whose pip is not configured for one.
    EnvError, with one line, for everything that can go wrong.
    """
    _validate(version)
    ready = find(version)
    if ready is not None:
        return ready
    folder = cache_dir() / "sglang" / key(version)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(_beside(folder, ".lock"), progress) as lock:
            ready = find(version)
            if ready is not None:
                return ready
            free = shutil.disk_usage(folder.parent).free
            if free < NEEDED_BYTES:
                raise EnvUsage(
                    f"SGLang {version} needs {NEEDED_BYTES >> 30} GiB under {folder.parent}, "
                    f"{free / 2**30:.1f} are free (set REFITCHECK_CACHE to another disk)"
                )
            _build(version, folder, progress, torch_index, lock)
    except OSError as error:
        raise EnvUsage(f"cannot make the environment under {folder.parent}: {error.strerror or error}") from error
    return SglangEnv(version, folder / "bin" / "python", folder)


def remove(version: str) -> bool:
    """Delete the cached environment of `version`; False when there is none. One given by the user stays."""
    folder = cache_dir() / "sglang" / key(version)
    if not folder.exists():
        return False
    try:
        with _locked(_beside(folder, ".lock"), lambda line: None):
            shutil.rmtree(folder)
    except OSError as error:
        raise EnvUsage(f"cannot remove {folder}: {error.strerror or error}") from error
    return True


def _validate(version: str) -> None:
    try:
        Version(version)
    except InvalidVersion:
        raise EnvUsage(f"{version!r} is not a version; known versions: {', '.join(SUPPORTED)}") from None
    pins(version)
    if find(version) is None and sys.version_info[:2] != (3, 11):
        raise EnvUsage(
            f"the pins of real SGLang are for Python 3.11, this is {sys.version_info[0]}.{sys.version_info[1]}"
        )


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[int]:
    """Hold the lock of `path`; its descriptor. A child that inherits it keeps the lock when we are killed."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another run that makes {path.stem}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(folder.name + suffix)  # not with_suffix: a version has dots of its own


def _build(version: str, folder: Path, progress: Progress, torch_index: str | None, lock: int) -> None:
    for left in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(left, ignore_errors=True)  # we hold the lock: whoever left it is gone
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    log = _beside(folder, ".log")

    def step(command: list[str], **extra: str) -> str:
        return _step(command, out, log, lock, **extra)

    try:
        with log.open("w", encoding="utf-8") as out:
            progress(f"sglang {version}: new environment in {folder}")
            python = temporary / "bin" / "python"
            step([sys.executable, "-m", "venv", str(temporary)])
            progress(f"sglang {version}: {TORCH}")
            index = ["--index-url", torch_index] if torch_index else []
            install = [str(python), "-m", "pip", "install", "--no-deps", "--no-compile"]
            step([*install, *index, TORCH])
            chosen = pins(version)
            progress(f"sglang {version}: {len(chosen)} pinned packages and sglang itself")
            (temporary / "pins.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")
            step([*install, "-r", str(temporary / "pins.txt"), f"sglang=={version}"])
            _add_shim(temporary)
            progress(f"sglang {version}: import check")
            said = step([str(python), "-W", "ignore", "-c", _CHECK], SGLANG_USE_CPU_ENGINE="1")
        (temporary / "ready.json").write_text(json.dumps({"version": version, "check": said.split()[-2:]}))
        temporary.rename(folder)
        progress(f"sglang {version}: ready")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _add_shim(folder: Path) -> None:
    site = next((folder / "lib").glob("python*")) / "site-packages"
    (site / f"{_SHIM}.py").write_text(_shim_text(), encoding="utf-8")
    (site / f"{_SHIM}.pth").write_text(f"import {_SHIM}; {_SHIM}.install()\n", encoding="utf-8")


def _step(command: list[str], out: TextIO, log: Path, lock: int, **extra: str) -> str:
    """Run one step; its output goes to the log and back to the caller. EnvError says in one line why it failed.

    It inherits `lock`: a pip that outlives us is waited for by the next run, which then sweeps away what it left.
    """
    # PYTHON* of ours (a path, a no-bytecode switch) must not reach an environment of another project.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | extra
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        pass_fds=(lock,),
    )
    out.write(done.stdout)
    out.flush()
    if done.returncode:
        kind = EnvUsage if _DISK_FULL.search(done.stdout) else EnvError
        raise kind(f"{explain(done.stdout)} (log: {log})")
    return done.stdout


_DISK_FULL = re.compile(r"No space left on device|Errno 28")
_CAUSES = (
    (_DISK_FULL.pattern, "the disk is full; set REFITCHECK_CACHE to another disk"),
    (
        r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|Network is unreachable"
        r"|ConnectTimeout|Max retries",
        "no network: the package index cannot be reached",
    ),
    (
        r"No matching distribution found for torch",
        f"pip finds no {TORCH}; give an index that has CPU builds with --torch-index URL",
    ),
)


def explain(output: str) -> str:
    """One line for a failed step, from what it printed."""
    for pattern, text in _CAUSES:
        if re.search(pattern, output):
            return text
    errors = [line for line in output.splitlines() if re.match(r"ERROR|error|\w*Error\b", line.strip())]
    lines = errors or [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "the step failed without a word"
