"""The catalogue of exchange sequences: one module per part of the contract, each with a list `SEQUENCES`."""

from __future__ import annotations

from importlib import import_module

from real_runs.sequence import Flavour, Sequence

MODULES = (
    "session",
    "payloads",
    "shapes",
    "versions",
    "pausing",
    "flushing",
    "locking",
    "generating",
    "memory",
    "checker",
    "health",
    "control",
    "validation",
    "auth",
    "disk",
    "fatal",
)


def catalogue() -> list[Sequence]:
    """Every sequence, in the order of the modules. ValueError when two have the same name."""
    found = [entry for name in MODULES for entry in import_module(f"{__name__}.{name}").SEQUENCES]
    names = [entry.name for entry in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"sequence names used twice: {', '.join(twice)}")
    return found


def select(version: str, tp: int, flavour: Flavour = "plain") -> list[Sequence]:
    """The sequences for one engine: the harmless first, then those that taint it, then the fatal ones."""
    fit = [entry for entry in catalogue() if entry.applies(version, tp, flavour)]
    return sorted(fit, key=lambda entry: (entry.fatal, entry.taints))
