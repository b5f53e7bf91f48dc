"""The mutation set that a project names in its pyproject.toml, table `[tool.refitcheck.mutate]`.

Keys: `targets` (modules or packages), `tests` (pytest arguments), `rules` (true: the rules judge too), `equivalents`
(the reviewed file), `caches` (`module:name` of objects with a `clear()`, emptied before and after each mutant). Paths
are relative to the file.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError

_KEYS = {"targets": list, "tests": list, "rules": bool, "equivalents": str, "caches": list}


@dataclass(frozen=True)
class Config:
    """What the table says."""

    targets: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    rules: bool = False
    equivalents: Path | None = None
    caches: tuple[str, ...] = ()


def load(start: Path | None = None) -> Config:
    """The table of the nearest pyproject.toml at or above `start` (the working folder). UsageError when it is wrong."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            return _read(path)
    return Config()


def _read(path: Path) -> Config:
    try:
        data: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {str(error).splitlines()[0]}") from error
    table = data.get("tool", {}).get("refitcheck", {}).get("mutate", {})
    for key, value in table.items():
        if key not in _KEYS or not isinstance(value, _KEYS[key]):
            raise UsageError(f"{path}: [tool.refitcheck.mutate] has no {key} = {value!r}; it has {', '.join(_KEYS)}")
    equivalents = table.get("equivalents")
    return Config(
        tuple(table.get("targets", ())),
        tuple(_absolute(path.parent, arg) for arg in table.get("tests", ())),
        table.get("rules", False),
        path.parent / equivalents if equivalents else None,
        tuple(table.get("caches", ())),
    )


def _absolute(folder: Path, arg: str) -> str:
    return arg if arg.startswith("-") else str(folder / arg)
