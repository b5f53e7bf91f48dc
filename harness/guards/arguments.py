"""Launch arguments that a release of SGLang does not have: they end the launch, on a cluster, after an upgrade."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import lru_cache

from fakes.engine.profiles import PROFILES
from fakes.fronts.launch_args import flags_of
from harness.errors import UsageError

MAX_ARGUMENTS = 10_000


def unknown_arguments(version: str, names: Sequence[str]) -> list[str]:
    """One line for each of `names` (--tp-size, with or without =value, or tp_size) that `version` does not take.

    The names are those of its command line and of the fields of ServerArgs (ServerArgs.add_cli_args,
    server_args.py@0.5.23); one that it knows only to refuse is not taken. UsageError for a version without a profile.
    """
    if version not in PROFILES:
        raise UsageError(f"unknown engine version {version!r}; known are {', '.join(PROFILES)}")
    given = [name.partition("=")[0].strip() for name in names[:MAX_ARGUMENTS]]
    return [line for name in given if name and (line := _line(version, name))]


@lru_cache(maxsize=32)
def _taken(version: str) -> dict[str, bool]:
    """Flags and fields of a version, with whether they only end the launch. A field may be spelt by several flags."""
    found: dict[str, bool] = {}
    for flag, (dest, refused) in flags_of(version).items():
        found[flag] = refused
        found[dest] = refused and found.get(dest, True)
    return found


def _line(version: str, name: str) -> str:
    """What is wrong with it; nothing for one that is taken."""
    mine = _taken(version)
    if name in mine:
        return f"{name}: {version} knows it only to refuse it" if mine[name] else ""
    had = [other for other in PROFILES if other != "miles" and name in _taken(other) and not _taken(other)[name]]
    if had:
        return f"{name}: not in {version}; " + (f"{had[0]} to {had[-1]} had it" if had[1:] else f"{had[0]} has it")
    close = difflib.get_close_matches(name, sorted(mine), 1)
    return f"{name}: no release has it" + (f"; is {close[0]} meant?" if close else "")
