"""Environments of real SGLang versions, one each: `making` says how."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from packaging.version import InvalidVersion, Version

from real_runs import making
from real_runs.making import TORCH, EnvError, EnvUsage, Progress, Recipe, cache_dir, explain

__all__ = [
    "SUPPORTED",
    "EnvError",
    "EnvUsage",
    "Progress",
    "SglangEnv",
    "cache_dir",
    "explain",
    "find",
    "given_env_variable",
    "key",
    "known",
    "make",
    "pins",
    "remove",
]
SUPPORTED = ("0.5.12.post1", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")
NEEDED_BYTES = 3 * 2**30
_SHIM = "refitcheck_sglang_shim"
_CHECK = "import sglang; from sglang.srt.entrypoints.http_server import app; print(sglang.__version__, len(app.routes))"


@dataclass(frozen=True)
class SglangEnv:
    """A ready environment. `python` runs SGLang of `version`; `given` means that the user provided it."""

    version: str
    python: Path
    folder: Path
    given: bool = False


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
    return making.pinned(*files)


def _shim_text() -> str:
    return resources.files("real_runs").joinpath(f"{_SHIM}.py").read_text("utf-8")


def key(version: str) -> str:
    """The folder's name: version, device, Python, and a hash of all that goes in."""
    return making.hashed(version, TORCH, f"sglang=={version}", *pins(version), _shim_text())


def _recipe(version: str) -> Recipe:
    return Recipe(
        family="sglang",
        name=key(version),
        label=f"sglang {version}",
        pins=tuple(pins(version)),
        wanted=(f"sglang=={version}",),
        check=_CHECK,
        needs=NEEDED_BYTES,
        shims={f"{_SHIM}.py": _shim_text(), f"{_SHIM}.pth": f"import {_SHIM}; {_SHIM}.install()\n"},
        environment={"SGLANG_USE_CPU_ENGINE": "1"},
    )


def find(version: str) -> SglangEnv | None:
    """The ready environment of `version`: the user's own, else the cached one, else None."""
    given = os.environ.get(given_env_variable(version))
    if given:
        python = Path(given).expanduser() / "bin" / "python"
        if not python.exists():
            raise EnvUsage(f"{given_env_variable(version)}={given} has no bin/python")
        return SglangEnv(version, python, Path(given), given=True)
    recipe = _recipe(version)
    return SglangEnv(version, recipe.folder / "bin" / "python", recipe.folder) if recipe.ready else None


def known() -> list[SglangEnv]:
    """Every ready environment of a known version."""
    return [env for version in SUPPORTED if (env := find(version)) is not None]


def make(version: str, *, progress: Progress = print, torch_index: str | None = None) -> SglangEnv:
    """The environment of `version`, made when it is not there yet (a minute or two, 1.5 GB).

    `torch_index` is an index URL with a CPU build of torch, for machines whose pip is not configured for one.
    EnvError, with one line, for everything that can go wrong.
    """
    _validate(version)
    ready = find(version)
    if ready is not None:
        return ready
    folder = making.made(_recipe(version), progress, torch_index)
    return SglangEnv(version, folder / "bin" / "python", folder)


def remove(version: str) -> bool:
    """Delete the cached environment of `version`; False when there is none. One given by the user stays."""
    return making.unmake(_recipe(version))


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
