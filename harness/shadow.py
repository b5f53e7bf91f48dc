"""Whether a foreign package called fakes, harness, conformance or real_runs stands before one of ours."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PACKAGES = ("fakes", "harness", "conformance", "real_runs")
HOME = Path(__file__).resolve().parent.parent


def shadowed() -> list[str]:
    """One line for each of our packages that Python finds elsewhere than beside this file."""
    out: list[str] = []
    for name in PACKAGES:
        ours = HOME / name
        found = _where(name)
        if found is None:
            out.append(f"package {name} is not importable; ours is {ours}")
        elif found != ours:
            out.append(f"package {name} is shadowed: Python finds {found}, ours is {ours}")
    return out


def _where(name: str) -> Path | None:
    loaded = sys.modules.get(name)
    origin = getattr(loaded, "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        origin = spec.origin or next(iter(spec.submodule_search_locations or []), None)
    if origin is None:
        return None
    path = Path(origin).resolve()
    return path.parent if path.suffix == ".py" else path
