"""Which engine versions a rule or scenario speaks of.

A specifier is PEP 440's (">=0.5.21", "<0.5.19,>=0.5.17"); alternatives are joined by "||". The sglang-miles branch
has no release number: it counts as 0.5.17.dev30, from which it branched, unless it is named. "miles" is that build and
no other, a member "!=miles" leaves it out: ">=0.5.21 || miles", "<0.5.21,!=miles".
"""

from __future__ import annotations

from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

MILES = "miles"
MILES_RELEASE = Version("0.5.17.dev30")


@lru_cache(maxsize=4096)
def version_matches(version: str, specifier: str) -> bool:
    """Whether engine `version` ("0.5.23", "miles") is meant by `specifier`; "" means all.

    ValueError names the part that cannot be read.
    """
    try:
        release = MILES_RELEASE if version == MILES else Version(version)
    except InvalidVersion:
        raise ValueError(f"{version!r} is not an engine version") from None
    return any(_alternative(version, release, part) for part in specifier.split("||"))


def _alternative(version: str, release: Version, text: str) -> bool:
    members = [member.strip() for member in text.split(",") if member.strip()]
    if MILES in members:
        if members != [MILES]:
            raise ValueError(f"{text.strip()!r}: {MILES!r} stands alone; join alternatives with '||'")
        return version == MILES
    without_miles = f"!={MILES}" in members
    numbers = ",".join(member for member in members if member != f"!={MILES}")
    try:
        wanted = SpecifierSet(numbers, prereleases=True)
    except InvalidSpecifier:
        raise ValueError(f"{text.strip()!r} is neither a version specifier nor {MILES!r}") from None
    return release in wanted and not (without_miles and version == MILES)
