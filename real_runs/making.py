"""Environments of other projects: made by one command, cached, never shared with ours.

An environment is a virtual environment in the cache, under a name with a hash of everything that goes into it. It is
built in a folder of its own and renamed into place, so that a half-made one is never seen; a file lock keeps two runs
from making the same one at once.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TextIO

from packaging.requirements import Requirement

TORCH = "torch==2.13.0+cpu"
Progress = Callable[[str], None]


class EnvError(Exception):
    """The environment cannot be made; the message is one line for a person."""


class EnvUsage(EnvError):
    """The person who called us can mend it: an unknown version, a cache that cannot be written, a full disk."""


@dataclass(frozen=True)
class Recipe:
    """What goes into an environment besides torch, all of it without dependencies.

    `family` is its folder in the cache, `label` how progress and errors call it, `pins` the requirement lines, `wanted`
    those of the project itself, `check` a program that prints at least two words, `shims` texts of files in
    site-packages by name, `needs` bytes that must be free.
    """

    family: str
    name: str
    label: str
    pins: tuple[str, ...]
    wanted: tuple[str, ...]
    check: str
    needs: int
    shims: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where it is, once it is made."""
        return cache_dir() / self.family / self.name

    @property
    def ready(self) -> bool:
        """Whether it is made."""
        return (self.folder / "ready.json").exists()


def cache_dir() -> Path:
    """`$REFITCHECK_CACHE`, else the user's cache folder (`$XDG_CACHE_HOME` or ~/.cache) with refitcheck below it."""
    own = os.environ.get("REFITCHECK_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "refitcheck"


def pinned(*files: str) -> list[str]:
    """The requirement lines of these files of `real_runs.pins`; a later file replaces lines of an earlier one."""
    chosen: dict[str, str] = {}
    for file in files:
        for line in resources.files("real_runs.pins").joinpath(file).read_text("utf-8").splitlines():
            if line and not line.startswith("#"):
                chosen[re.sub(r"[-_.]+", "-", Requirement(line).name).lower()] = line
    return sorted(chosen.values(), key=str.lower)


def hashed(version: str, *content: str) -> str:
    """A folder's name: version, device, Python, and a hash of all that goes in."""
    digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:10]
    return f"{version}-cpu-py{sys.version_info.major}{sys.version_info.minor}-{digest}"


def made(recipe: Recipe, progress: Progress, torch_index: str | None) -> Path:
    """The folder of the environment, made when it is not there yet.

    Bytecode is left to the first import: pip would compile hundreds of megabytes, most of which nothing here imports.
    EnvError, with one line, for everything that can go wrong.
    """
    folder = recipe.folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(_beside(folder, ".lock"), progress) as lock:
            if recipe.ready:
                return folder
            free = shutil.disk_usage(folder.parent).free
            if free < recipe.needs:
                raise EnvUsage(
                    f"{recipe.label} needs {recipe.needs >> 30} GiB under {folder.parent}, "
                    f"{free / 2**30:.1f} are free (set REFITCHECK_CACHE to another disk)"
                )
            _build(recipe, progress, torch_index, lock)
    except OSError as error:
        raise EnvUsage(f"cannot make the environment under {folder.parent}: {error.strerror or error}") from error
    return folder


def unmake(recipe: Recipe) -> bool:
    """Delete the environment; False when there is none."""
    folder = recipe.folder
    if not folder.exists():
        return False
    try:
        with _locked(_beside(folder, ".lock"), lambda line: None):
            shutil.rmtree(folder)
    except OSError as error:
        raise EnvUsage(f"cannot remove {folder}: {error.strerror or error}") from error
    return True


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


def _build(recipe: Recipe, progress: Progress, torch_index: str | None, lock: int) -> None:
    folder, label = recipe.folder, recipe.label
    for left in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(left, ignore_errors=True)  # we hold the lock: whoever left it is gone
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    log = _beside(folder, ".log")

    def step(command: Sequence[str], **extra: str) -> str:
        return _step(command, out, log, lock, **extra)

    try:
        with log.open("w", encoding="utf-8") as out:
            progress(f"{label}: new environment in {folder}")
            python = temporary / "bin" / "python"
            step([sys.executable, "-m", "venv", str(temporary)])
            progress(f"{label}: {TORCH}")
            index = ["--index-url", torch_index] if torch_index else []
            install = [str(python), "-m", "pip", "install", "--no-deps", "--no-compile"]
            step([*install, *index, TORCH])
            progress(f"{label}: {len(recipe.pins)} pinned packages and {recipe.label.split()[0]} itself")
            (temporary / "pins.txt").write_text("\n".join(recipe.pins) + "\n", encoding="utf-8")
            step([*install, "-r", str(temporary / "pins.txt"), *recipe.wanted])
            _add_shims(temporary, recipe.shims)
            progress(f"{label}: import check")
            said = step([str(python), "-W", "ignore", "-c", recipe.check], **recipe.environment)
        ready = {"version": recipe.name.partition("-cpu-")[0], "check": said.split()[-2:]}
        (temporary / "ready.json").write_text(json.dumps(ready))
        temporary.rename(folder)
        progress(f"{label}: ready")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _add_shims(folder: Path, shims: Mapping[str, str]) -> None:
    site = next((folder / "lib").glob("python*")) / "site-packages"
    for name, text in shims.items():
        (site / name).write_text(text, encoding="utf-8")


def _step(command: Sequence[str], out: TextIO, log: Path, lock: int, **extra: str) -> str:
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
