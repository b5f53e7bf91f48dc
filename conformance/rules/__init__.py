"""The rules, one module per family."""

from __future__ import annotations

from importlib import import_module

from harness.rules import Rule

FAMILIES = (
    "sess",
    "pause",
    "cache",
    "ver",
    "lock",
    "rank",
    "ipc",
    "name",
    "part",
    "err",
    "live",
    "mem",
    "verif",
    "coll",
    "guard",
    "disk",
    "deriv",
    "draft",
    "lora",
)


def all_rules() -> tuple[Rule, ...]:
    """Every rule, family by family."""
    found = (import_module(f"conformance.rules.{family}").RULES for family in FAMILIES)
    return tuple(rule for rules in found for rule in rules)
