"""Catalogues of mutants: entry points of `refitcheck.catalogues` and a user's own files. Plants become mutants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from typing import Any

from harness.errors import UsageError
from harness.mutate.edits import Patch
from harness.mutate.files import load_object, users_code
from harness.mutate.mutant import Mutant
from harness.suites import Plant, load_point

GROUP = "refitcheck.catalogues"


def load(files: Sequence[str] = (), *, installed: bool = True) -> dict[str, Mutant]:
    """All mutants by id: installed ones, then those of `files`. UsageError for what does not load or comes twice."""
    out: dict[str, Mutant] = {}
    if installed:
        for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
            _take(out, load_point(point), f"entry point {point.name}")
    for text in files:
        _take(out, load_object(text, "mutants"), text)
    return dict(sorted(out.items(), key=lambda item: isinstance(item[1].op, Patch)))  # edits of code and tables first


def find(name: str, files: Sequence[str]) -> Mutant:
    """One mutant by id. UsageError when there is none."""
    known = load(files)
    if name not in known:
        raise UsageError(f"unknown mutant {name!r}")
    return known[name]


def _take(out: dict[str, Mutant], found: Any, where: str) -> None:
    for one in _all(found, where):
        mutant = one if isinstance(one, Mutant) else planted(one) if isinstance(one, Plant) else None
        if mutant is None:
            raise UsageError(f"{where}: {one!r} is neither a Mutant nor a Plant")
        if wrong := _wrong(mutant):
            raise UsageError(f"{where}: mutant {mutant.id}: {wrong}")
        if mutant.id in out:
            raise UsageError(f"{where}: mutant {mutant.id} is defined twice")
        out[mutant.id] = mutant


def _all(found: Any, where: str) -> Iterable[Any]:
    """What was found, or what it gives when it is called; UsageError for what is no collection."""
    with users_code(where, f"{where}: gives no mutants"):
        return list(found() if callable(found) else found)


def _wrong(mutant: Mutant) -> str:
    """What is wrong with its fields, or ""."""
    if not isinstance(mutant.id, str) or not mutant.id:
        return "its id is no text"
    if not isinstance(mutant.target, str) or ":" not in mutant.target:
        return f"its target is {mutant.target!r}, not 'module:function'"
    if not all(callable(getattr(mutant.op, name, None)) for name in ("apply", "describe")):
        return f"its op is {mutant.op!r}, not an operation of harness.mutate.edits"
    if not isinstance(mutant.breaks, frozenset | set) or not all(isinstance(rule, str) for rule in mutant.breaks):
        return f"breaks is {mutant.breaks!r}, not a set of rule ids"
    return "" if mutant.breaks else "it breaks no rule"


def planted(plant: Plant) -> Mutant:
    """A planted defect as a mutant: its context is entered in a process of its own, and never left."""

    def enter() -> Any:
        stack = contextlib.ExitStack()
        _kept.append(stack)
        return stack.enter_context(plant.apply())

    side = "client" if plant.target == "client" else "engine"
    return Mutant(
        plant.id, f"{side}:", Patch(enter, plant.text or plant.id, plant.apply), plant.breaks, plant.origin, plant.text
    )


_kept: list[contextlib.ExitStack] = []  # a generator that is collected would undo its patch
