"""What a client must do: scenarios that let the system under test refit, and ask the engines what came of it."""

from __future__ import annotations

from importlib import import_module

from harness.scenario import Scenario

MODULES = (
    "envelope",
    "faults",
    "cache",
    "state",
    "fleet",
    "memory",
    "coll",
    "nixl",
    "guard",
    "disk",
    "ipc",
    "deriv",
    "draft",
    "lora",
    "gate",
)


def scenarios() -> tuple[Scenario, ...]:
    """Every scenario of this side."""
    found = (import_module(f"conformance.refit.{module}").scenarios for module in MODULES)
    return tuple(scenario for listed in found for scenario in listed)
