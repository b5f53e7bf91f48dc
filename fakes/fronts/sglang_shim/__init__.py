"""An importable `sglang` of what the drivers of engines import, by version, put on the path on demand.

`install("0.5.23")` for this process, `environment("0.5.23")` for its children (PYTHONPATH), `installed(...)` for a
block. It refuses to load beside a real sglang, and whatever a driver asks of it and it lacks is an error that names
the symbol, kept in `lacking()`: a driver that catches the ImportError must not be judged on a fallback.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["VERSION_VARIABLE", "ShimRefused", "environment", "install", "installed", "lacking", "version"]

FOLDER = Path(__file__).resolve().parent / "path"
"""Holds nothing but a package called `sglang`."""

VERSION_VARIABLE = "REFITCHECK_SGLANG_SHIM"
"""Which SGLang the shim is, in this process and its children."""

_HOME = str(Path(__file__).resolve().parents[3])
_lacking: list[str] = []


class ShimRefused(ImportError):
    """The shim is not loaded: a real sglang is there, or nobody said which version to be."""


def install(which: str) -> None:
    """`import sglang` gives the shim of this version from now on, here and in children that inherit the environment.

    ShimRefused beside a real sglang, ValueError for a version that no profile has.
    """
    _check(which)
    found = real_sglang()
    if found:
        raise ShimRefused(f"a real sglang is installed ({found}): the shim is not loaded beside it")
    loaded = sys.modules.get("sglang")
    if loaded is not None and os.environ.get(VERSION_VARIABLE) != which:
        raise ShimRefused(
            f"the shim of SGLang {os.environ.get(VERSION_VARIABLE)} is loaded: one process is one version"
        )
    os.environ.update(environment(which))
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))


@contextmanager
def installed(which: str) -> Iterator[None]:
    """The same for a block; afterwards no module of the shim is left."""
    before = {name: os.environ.get(name) for name in (VERSION_VARIABLE, "PYTHONPATH")}
    path = list(sys.path)
    _lacking.clear()
    install(which)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in [name for name in sys.modules if name.split(".")[0] == "sglang"]:
            del sys.modules[name]
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def environment(which: str, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a child process needs: its version, and a PYTHONPATH that begins with the shim; `base` is os.environ."""
    _check(which)
    given = os.environ if base is None else base
    rest = [part for part in given.get("PYTHONPATH", "").split(os.pathsep) if part not in ("", str(FOLDER), _HOME)]
    return {VERSION_VARIABLE: which, "PYTHONPATH": os.pathsep.join([str(FOLDER), *rest, _HOME])}


def version() -> str:
    """The version that the shim is in this process. ShimRefused when nobody said."""
    which = os.environ.get(VERSION_VARIABLE, "")
    if not which:
        raise ShimRefused(f"{VERSION_VARIABLE} is not set: which SGLang is the shim to be?")
    return which


def has_session_calls() -> bool:
    """Whether an Engine of this version has begin_weight_update and end_weight_update."""
    from fakes.engine.profiles import PROFILES

    return PROFILES[version()].engine_session_calls


def lacking(symbol: str = "") -> tuple[str, ...]:
    """What was asked of the shim in this process and is not there, by name; `symbol` adds one."""
    if symbol and symbol not in _lacking:
        _lacking.append(symbol)
    return tuple(_lacking)


def real_sglang() -> str:
    """Where a real sglang lies that this process would import if it were not for the shim; "" where there is none."""
    loaded = sys.modules.get("sglang")
    where = str(getattr(loaded, "__file__", "") or "")
    if loaded is not None and not where.startswith(str(FOLDER)):
        return where or "already imported"
    path = [part for part in sys.path if Path(part or ".").resolve() != FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("sglang", path)
    return str(spec.origin) if spec is not None and spec.origin else ""


def _check(which: str) -> None:
    from fakes.engine.profiles import PROFILES

    if which not in PROFILES:
        raise ValueError(f"no profile of SGLang {which!r}; known: {', '.join(PROFILES)}")
