"""Known differences between the fake and SGLang: one file, every entry with a sequence that shows it.

An entry whose sequence no longer shows it is stale, and a test fails: the fake was mended, or something else changed.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Literal

import msgspec

from real_runs.fuzz.steps import Answer, Step

FILE = "known_differences.toml"


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """One difference. `op` is a pattern; `real` and `fake` are patterns over the JSON of the fields that differ, per
    side, or (lane server) over the status and body of the call that differs.

    `steps` shows it on the fake, and `says` is what the real one answered to the last of them. `right` is the side that
    keeps the contract: where it is "fake" the real one has a bug, and `why` names it.
    """

    id: str
    lane: Literal["oracle", "server"]
    versions: list[str]
    op: str
    what: str
    why: str
    since: str
    right: Literal["real", "fake", "neither"]
    real: str
    fake: str
    steps: str
    says: str

    def explains(self, lane: str, version: str, op: str, real: Mapping[str, Any], fake: Mapping[str, Any]) -> bool:
        """Whether a difference is this one."""
        return (
            self.lane == lane
            and version in self.versions
            and re.fullmatch(self.op, op) is not None
            and re.fullmatch(self.real, json.dumps(real, sort_keys=True), re.DOTALL) is not None
            and re.fullmatch(self.fake, json.dumps(fake, sort_keys=True), re.DOTALL) is not None
        )


def load() -> list[Known]:
    """All entries. ValueError when two have one id."""
    text = resources.files("real_runs.fuzz").joinpath(FILE).read_text("utf-8")
    found = msgspec.convert(tomllib.loads(text).get("difference", []), list[Known])
    twice = {entry.id for entry in found if sum(other.id == entry.id for other in found) > 1}
    if twice:
        raise ValueError(f"{FILE}: ids used twice: {', '.join(sorted(twice))}")
    return found


def differing(real: Answer, fake: Answer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that differ, on each side."""
    keys = [key for key in {**real, **fake} if real.get(key) != fake.get(key)]
    return {key: real.get(key) for key in keys}, {key: fake.get(key) for key in keys}


class Explainer:
    """Finds the entry that explains a difference of one lane and version."""

    def __init__(self, lane: str, version: str, entries: Sequence[Known] | None = None) -> None:
        self._lane, self._version = lane, version
        self._entries = load() if entries is None else entries

    def __call__(self, steps: Sequence[Step], real: Answer, fake: Answer) -> str | None:
        """The entry's id, None when nothing explains it."""
        one, other = differing(real, fake)
        for entry in self._entries:
            if entry.explains(self._lane, self._version, steps[-1]["op"], one, other):
                return entry.id
        return None
