"""Launch arguments that a release of SGLang does not have: they end the launch, on a cluster, after an upgrade."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import lru_cache

from fakes.engine.profiles import PROFILES
from fakes.fronts.launch_args import flags_of
from harness.errors import UsageError
from harness.words import quoted

MAX_ARGUMENTS = 10_000


def unknown_arguments(version: str, given: Sequence[str]) -> list[str]:
    """One line for each argument in `given` that `version` does not take.

    `given` is part of a command line (--tp-size 2 --port=30000: what follows a flag and is none is its value), or names
    of ServerArgs' fields (tp_size), or both, the names first. A flag may be shortened as argparse lets it. The names
    are those of ServerArgs and its command line (ServerArgs.add_cli_args, server_args.py@0.5.23); one that it knows
    only to refuse is not taken. UsageError for a version without a profile, an empty name, and more than 10,000.
    """
    if version not in PROFILES:
        raise UsageError(f"unknown engine version {quoted(version)}; known are {', '.join(PROFILES)}")
    if len(given) > MAX_ARGUMENTS:
        raise UsageError(f"{len(given)} arguments; more than {MAX_ARGUMENTS} are no launch of an engine")
    return [line for name in names_of(given) if (line := _line(version, name))]


def names_of(given: Sequence[str]) -> list[str]:
    """The arguments' names, without values. UsageError for an empty one."""
    names: list[str] = []
    after_a_flag = False
    for one in given:
        name = one.partition("=")[0].strip()
        is_flag = name.startswith("-") and not name.lstrip("-")[:1].isdigit()
        if after_a_flag and not is_flag:
            continue
        if not name.strip("-"):
            raise UsageError(f"{quoted(one)!r} is no argument's name")
        after_a_flag = after_a_flag or is_flag
        names.append(name)
    return names


@lru_cache(maxsize=32)
def _taken(version: str) -> dict[str, bool]:
    """Flags and fields of a version, with whether they only end the launch. A field may be spelt by several flags."""
    found: dict[str, bool] = {}
    for flag, (dest, refused) in flags_of(version).items():
        found[flag] = refused
        found[dest] = refused and found.get(dest, True)
    return found


@lru_cache(maxsize=MAX_ARGUMENTS)
def _line(version: str, name: str) -> str:
    """What is wrong with it; nothing for one that is taken."""
    mine = _taken(version)
    if name in mine:
        return f"{name}: {version} knows it only to refuse it" if mine[name] else ""
    meant = {flags_of(version)[flag][0] for flag in mine if name.startswith("--") and flag.startswith(name)}
    if len(meant) == 1:
        return ""
    had = [other for other in PROFILES if other != "miles" and name in _taken(other) and not _taken(other)[name]]
    told = quoted(name, 80)
    if had:
        return f"{told}: not in {version}; " + (f"{had[0]} to {had[-1]} had it" if had[1:] else f"{had[0]} has it")
    if meant:
        return f"{told}: may be any of {', '.join(sorted(meant)[:4])} in {version}"
    close = difflib.get_close_matches(name[:80], sorted(mine), 1)
    return f"{told}: no release has it" + (f"; is {close[0]} meant?" if close else "")
