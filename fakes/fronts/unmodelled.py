"""The routes that SGLang has and the fake has not: `unmodelled.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from fakes.engine.profiles import ORDER

FILE = Path(__file__).with_name("unmodelled.toml")


def unmodelled(version: str) -> dict[str, str]:
    """Path to the reason, for one version; miles, whose routes nobody has listed, as 0.5.19."""
    at = ORDER.index("0.5.19" if version == "miles" else version)
    found = {}
    for group in tomllib.loads(FILE.read_text(encoding="utf-8"))["routes"]:
        if ORDER.index(group.get("first", ORDER[0])) <= at <= ORDER.index(group.get("last", ORDER[-1])):
            found.update(dict.fromkeys(group["paths"], group["why"]))
    return found
