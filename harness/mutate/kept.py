"""What the cache keeps of a result."""

from __future__ import annotations

from typing import Any, get_args

from harness.mutate.mutant import Result, VerdictName

_WIDER: dict[type, tuple[type, ...]] = {float: (int,)}
_KEPT = ("verdict", "by", "rule", "detail", "ran", "seconds", "cpu", "rerun", "killers")


def dump(result: Result) -> dict[str, Any]:
    """What the cache keeps of a result."""
    return {name: getattr(result, name) for name in _KEPT}


def readable(known: Any) -> dict[str, Any]:
    """What `dump` made, as it is; ValueError, KeyError or TypeError for anything else."""
    like = dump(Result("", "survived"))
    if any(type(known[name]) not in (type(value), *_WIDER.get(type(value), ())) for name, value in like.items()):
        raise TypeError("a field of another type")
    if known["verdict"] not in get_args(VerdictName) or not all(type(rule) is str for rule in known["killers"]):
        raise ValueError("no result")
    return dict(known)


def restore(result: Result, known: dict[str, Any]) -> None:
    """The reverse of `dump`."""
    for name in _KEPT:
        setattr(result, name, known[name])
    result.cached = True
