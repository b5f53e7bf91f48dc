"""What a guard looks at: where a trainer's driver, its workers, its actors and its launch arguments are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from harness.errors import HarnessError
from harness.guards.arguments import unknown_arguments
from harness.guards.child import ask_child
from harness.guards.imports import forbidden_imports
from harness.words import quoted


@dataclass(frozen=True)
class Subject:
    """As an adapter's attribute `guards` says it, a mapping with these keys.

    `drivers`: modules of the process that decides and posts. `workers`: modules that only workers may import.
    `not_installed`: packages that are missing where the driver runs. `executed`: whether `drivers` are imported too (in
    a child process, with `not_installed` missing), and not only read. `actors`: module:Class of Ray actors whose
    methods are to run in threads. `launch_arguments`: what SGLang is launched with, --tp-size or tp_size. `paths`:
    folders to look in first.
    """

    drivers: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    not_installed: tuple[str, ...] = ()
    executed: bool = True
    actors: tuple[str, ...] = ()
    launch_arguments: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Any, who: str) -> Subject:
        """From an adapter's attribute. HarnessError for what has no such form."""
        known = {f.name for f in fields(cls)}
        if not isinstance(given, Mapping) or not set(given) <= known:
            raise HarnessError(f"{who}: guards is a mapping with {', '.join(sorted(known))}, not {given!r}"[:300])
        taken: dict[str, Any] = {}
        for key, value in given.items():
            if key == "executed":
                taken[key] = bool(value)
            elif isinstance(value, (tuple, list)) and all(isinstance(one, str) and "\0" not in one for one in value):
                taken[key] = tuple(value)
            else:
                raise HarnessError(f"{who}: guards[{key!r}] is no tuple of strings but {value!r}"[:300])
        return cls(**taken)


def import_findings(subject: Subject, limit_s: float = 60.0) -> list[str]:
    """One line for each import that a driver must not make, as read, and for the first that a run stumbles over."""
    forbidden = (*subject.workers, *subject.not_installed)
    lines = [str(found) for found in forbidden_imports(subject.drivers, forbidden, subject.paths)]
    if subject.executed and subject.drivers:
        asked = {"drivers": list(subject.drivers), "blocked": list(forbidden)}
        told = ask_child("imports", asked, subject.paths, limit_s)
        missing = str(told.get("missing", ""))
        if told.get("raised") and any(missing == name or missing.startswith(f"{name}.") for name in forbidden):
            lines.append(f"{told['place']}: importing {told['driver']} without them raises {told['raised']}")
        elif told.get("raised"):
            why = f"{told['raised']} ({told['place']})" if told.get("place") else told["raised"]
            raise HarnessError(quoted(f"driver {told['driver']} is not imported here for another reason: {why}", 1000))
    return lines


def actor_findings(subject: Subject, limit_s: float = 120.0) -> list[str]:
    """One line for each class of `actors` that Ray makes an asyncio actor.

    By Ray's own rule where it is installed, else by what that was in 2.60, which the line says.
    """
    told = ask_child("actors", {"target": list(subject.actors)}, subject.paths, limit_s)
    by = "" if told["rays"] else " (by Ray's rule as of 2.60: it is not installed here)"
    return [
        f"{target} becomes an asyncio actor{by}: {', '.join(why[:5])} is asynchronous; all else runs on its loop"
        for target, why in told["asyncio"].items()
        if why
    ]


def argument_findings(subject: Subject, version: str) -> list[str]:
    """One line for each launch argument that the version does not take."""
    return unknown_arguments(version, subject.launch_arguments)
