"""The environment of megatron-bridge: torch's CPU build, megatron-core, no Transformer Engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from real_runs import making
from real_runs.making import TORCH, EnvUsage, Progress, Recipe

NAME = "megatron-bridge"
COMMAND = f"refitcheck env make {NAME}"
WANTED = ("megatron-core==0.16.1", "megatron-bridge==0.3.1")
NEEDED_BYTES = 2 * 2**30
GIVEN = "REFITCHECK_MEGATRON_BRIDGE_ENV"
"""The variable that names a ready environment."""

_HERE = Path(__file__).parent
_CHECK = f"import sys; sys.path.insert(0, {str(_HERE)!r}); import bridge_model; print(bridge_model.prepare())"


def recipe() -> Recipe:
    """What goes into it."""
    pins = making.pinned("megatron-bridge.txt")
    return Recipe(
        family="megatron",
        name=making.hashed("0.3.1", TORCH, *WANTED, *pins),
        label=NAME,
        pins=tuple(pins),
        wanted=WANTED,
        check=_CHECK,
        needs=NEEDED_BYTES,
    )


def find() -> Path | None:
    """Its Python: the user's own, else the cached one, else None. EnvUsage for one that is given and is none."""
    given = os.environ.get(GIVEN)
    if given:
        python = Path(given).expanduser() / "bin" / "python"
        if not python.exists():
            raise EnvUsage(f"{GIVEN}={given} has no bin/python")
        return python
    wanted = recipe()
    return wanted.folder / "bin" / "python" if wanted.ready else None


def make(*, progress: Progress = print, torch_index: str | None = None) -> Path:
    """Its folder, made when it is not there yet (40 s, 0.9 GB). EnvError, with one line."""
    ready = find()
    if ready is not None:
        return ready.parent.parent
    if sys.version_info[:2] != (3, 11):
        raise EnvUsage(f"the pins of {NAME} are for Python 3.11, this is {sys.version_info[0]}.{sys.version_info[1]}")
    return making.made(recipe(), progress, torch_index)


def remove() -> bool:
    """Delete the cached environment; False when there is none."""
    return making.unmake(recipe())
