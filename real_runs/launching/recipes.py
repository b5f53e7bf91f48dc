"""Recipes: which GPUs train, which serve, what the run has to say of its topology, and what may be overridden."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from harness.errors import UsageError
from harness.words import quoted

Value = str | int | float
RANGES: Mapping[str, tuple[float, float]] = {
    **{"seed": (0, 2**63 - 1), "steps": (1, 10**9), "window": (1, 10**9)},
    **{"time_limit_minutes": (1, 10**6), "gate_bound": (1, 2)},
}
"""Key -> least and most of a number."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of recipes.toml; its head says what the fields mean. `gpu_hours` is the cap of one run."""

    about: str
    nodes: int
    gpus_per_node: int
    trainer_gpus: int
    engines: int
    tp: int
    colocated: bool
    world_size: int
    transfer: str
    runs: Literal["suites", "trainer"]
    gpu_hours: float
    overrides: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.nodes * self.gpus_per_node


class Book(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file: a default for every key, and the recipes by name."""

    defaults: dict[str, Value]
    recipe: dict[str, Recipe]


@cache
def book() -> Book:
    """What recipes.toml says."""
    return msgspec.toml.decode(resources.files("real_runs.launching").joinpath("recipes.toml").read_bytes(), type=Book)


def named(name: str) -> Recipe:
    """One recipe. UsageError with all names for another one."""
    if name not in book().recipe:
        raise UsageError(f"no recipe {quoted(name, 60)}; there are {', '.join(book().recipe)}")
    return book().recipe[name]


def parsed(words: Sequence[str]) -> dict[str, str]:
    """`key=value` words. UsageError for one that is none, or a key given twice."""
    out: dict[str, str] = {}
    for word in words:
        key, found, value = word.partition("=")
        if not found or not key or key in out:
            raise UsageError(f"--set {quoted(word, 60)}: give every key once, as key=value")
        out[key] = value
    return out


def settled(recipe: Recipe, overrides: Mapping[str, str]) -> dict[str, Value]:
    """Every key with its default or its override, of the default's type. UsageError for a key that is not declared
    or a number out of its range."""
    out = dict(book().defaults)
    for key, text in overrides.items():
        if key not in recipe.overrides:
            raise UsageError(f"{quoted(key, 60)} is no key of this recipe; it has {', '.join(recipe.overrides)}")
        try:
            out[key] = type(out[key])(text)
        except ValueError:
            raise UsageError(f"{key}={quoted(text, 60)} is no {type(out[key]).__name__}") from None
        least, most = RANGES.get(key, (-math.inf, math.inf))
        found = out[key]
        if not isinstance(found, str) and not least <= found <= most:  # nan is in no range
            raise UsageError(f"--set {key}={quoted(text, 60)}: give {least} to {most}")
    return out
