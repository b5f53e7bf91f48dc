"""The reviewed list of equivalent mutants: each with the reason why no test could tell it from the original.

A TOML file of `[[equivalent]]` tables with target ("module:qualname"), op, original, replacement and reason; `n` picks
one of several that read the same. Texts, not lines: an entry survives when code moves and goes stale when it changes.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.mutate.mutant import Mutant
from harness.mutate.sites import Site
from harness.mutate.source import TargetError

_Key = tuple[str, str, str, str, int]


class Equivalents:
    """What the file says, and which entries no mutant asked for."""

    def __init__(self, entries: Iterable[dict[str, Any]] = (), where: str = "") -> None:
        self._reasons: dict[_Key, str] = {}
        self._used: set[_Key] = set()
        self._seen: Counter[tuple[str, str, str, str]] = Counter()
        for entry in entries:
            try:
                key = (
                    str(entry["target"]),
                    str(entry["op"]),
                    _flat(entry["original"]),
                    _flat(entry["replacement"]),
                    int(entry.get("n", 0)),
                )
                self._reasons[key] = str(entry["reason"])
            except (KeyError, TypeError, ValueError) as error:
                raise TargetError(f"{where}: an entry lacks {error}") from error

    def reason(self, mutant: Mutant) -> str:
        """Why this mutant is equivalent, or "". Ask for the mutants in the order of their files."""
        op: Any = mutant.op
        if not isinstance(op, Site):
            return ""
        base = (f"{op.source.name}:{op.qualname}", op.op, _flat(op.change.original), _flat(op.change.replacement))
        n = self._seen[base]
        self._seen[base] += 1
        key = (*base, n)
        if key in self._reasons:
            self._used.add(key)
        return self._reasons.get(key, "")

    def stale(self, modules: Iterable[str]) -> list[str]:
        """Entries for these modules that no mutant of theirs asked for: the code has changed."""
        names = set(modules)
        return [
            f"{target} {op}: {original} -> {replacement}"
            for target, op, original, replacement, n in self._reasons
            if target.partition(":")[0] in names and (target, op, original, replacement, n) not in self._used
        ]


def _flat(text: Any) -> str:
    return " ".join(str(text).split())


def load(path: Path) -> Equivalents:
    """Read the file; TargetError with one line when it cannot be read."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise TargetError(f"{path}: {str(error).splitlines()[0]}") from error
    return Equivalents(data.get("equivalent", []), str(path))
