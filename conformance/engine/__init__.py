"""What an engine must do: the scenarios run alike on fake, http and real engines."""

from __future__ import annotations

from importlib import import_module

from harness.scenario import Scenario

MODULES = (
    "sess",
    "pause",
    "cache",
    "ver",
    "lock",
    "rank",
    "name",
    "part",
    "err",
    "live",
    "mem",
    "saver",
    "ipc",
    "ipc_server",
    "verif",
    "coll",
    "disk",
    "deriv",
    "draft",
    "lora",
)


def scenarios() -> tuple[Scenario, ...]:
    """Every scenario of this side."""
    found = (import_module(f"conformance.engine.{module}").scenarios for module in MODULES)
    return tuple(scenario for listed in found for scenario in listed)
