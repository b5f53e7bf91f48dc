"""The profile of a new version, as far as its weight updater shows it, from the profile of an older one.

Every field that the updater can show is changed to each of its values; the change that makes most answers equal is
kept, until none helps. What the updater cannot show is left as it was, and named: that remains to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.profiles import PROFILES
from real_runs.fuzz.drawing import draw
from real_runs.fuzz.fake_updater import FakeUpdater
from real_runs.fuzz.link import Oracle
from real_runs.fuzz.search import first_difference
from real_runs.fuzz.steps import Answer, Step, Vocabulary

CANDIDATES: Mapping[str, Sequence[Any]] = {
    "session": ("none", "assert", "refuse"),
    "selector": (False, True),
    "flush_failure": ("die", "refuse"),
    "version_owner": ("tokenizer", "scheduler"),
    "version_before_flush": (False, True),
    "idle_ignores_queue_when_paused": (False, True),
    "group_missing": ("die", "receive", "partial"),
    "unpickler": ("prefix30", "prefix33", "exact200", "exact202"),
    "bucket_strict": (False, True),
}
"""The fields that a weight updater shows, and their values."""
UNSEEN = tuple(field for field in EngineProfile.__struct_fields__ if field not in {*CANDIDATES, "version", "sources"})
"""The fields that it cannot show."""


@dataclass(frozen=True)
class Derived:
    """`changed` maps a field to (value of the base, value that was seen). `unlike` sequences of `total` still differ.

    `undecided` are fields for which other values would do as well: nothing that was asked tells them apart.
    """

    profile: EngineProfile
    changed: dict[str, tuple[Any, Any]]
    undecided: dict[str, list[Any]]
    unlike: int
    total: int


def drawn(base: EngineProfile, parts: Sequence[str], count: int, number: int) -> list[list[Step]]:
    """Sequences that any version may be asked: those of `base`, and of `base` with sessions and without."""
    out: list[list[Step]] = []
    # flushes that are refused are drawn as often as others, whatever they do to the base
    kinds = [
        msgspec.structs.replace(base, session=kind, selector=kind != "none", flush_failure="refuse")
        for kind in ("refuse", "none")
    ]
    for kind in kinds:
        draw(Vocabulary(kind, parts).strategy(12), number, count // len(kinds), out.append)
    return out


def derive(base: EngineProfile, oracle: Oracle, *, size: int = 600, number: int = 0) -> Derived:
    """The profile of the version whose weight updater is `oracle`, from that of an older one."""
    asked = [(steps, oracle.play(steps)) for steps in drawn(base, oracle.parts, size, number)]
    best, unlike = base, _unlike(base, asked, len(asked))
    while unlike:
        fewest, better = unlike, best
        for _, other in _neighbours(best):
            count = _unlike(other, asked, fewest)
            if count < fewest:
                fewest, better = count, other
        if fewest == unlike:
            break
        best, unlike = better, fewest
    undecided: dict[str, list[Any]] = {}
    for name, other in _neighbours(best):
        if _unlike(other, asked, unlike + 1) == unlike:
            undecided.setdefault(name, []).append(getattr(other, name))
    changed = {
        name: (getattr(base, name), getattr(best, name))
        for name in CANDIDATES
        if getattr(base, name) != getattr(best, name)
    }
    return Derived(best, changed, undecided, unlike, len(asked))


def _neighbours(base: EngineProfile) -> Iterable[tuple[str, EngineProfile]]:
    for name, values in CANDIDATES.items():
        for value in values:
            if value != getattr(base, name):
                yield name, msgspec.structs.replace(base, **{name: value})


def _unlike(profile: EngineProfile, asked: Sequence[tuple[list[Step], list[Answer]]], enough: int) -> int:
    """How many sequences `profile` answers otherwise; counting stops at `enough`."""
    count = 0
    for steps, answers in asked:
        count += first_difference(answers, FakeUpdater(profile).play(steps)) is not None
        if count >= enough:
            break
    return count


def told(found: Derived, base: str, version: str, unseen: Sequence[str] = UNSEEN) -> str:
    """The entry for `fakes/engine/profiles.py` as far as it is known, and what remains to be read."""
    lines = [f"{version} from {base}: {found.total - found.unlike} of {found.total} sequences answered alike"]
    lines += [f"  {name} = {new!r}   (was {old!r})" for name, (old, new) in found.changed.items()]
    if not found.changed:
        lines.append("  nothing that these answers show has changed")
    lines += [
        f"  {name}: {getattr(found.profile, name)!r}, but {' or '.join(map(repr, others))} would do as well"
        for name, others in found.undecided.items()
    ]
    lines.append(f"  to be read: {', '.join(unseen)}")
    lines += [
        "  as an entry of fakes/engine/profiles.py:",
        *_entry(found, base, version),
        *_compared(found, version, unseen),
    ]
    return "\n".join(lines)


def _entry(found: Derived, base: str, version: str) -> list[str]:
    sources = dict.fromkeys(found.changed, "observed: refitcheck diff --derive")
    return [
        f"    _next(PROFILES[{base!r}], {version!r}, {{",
        *(f"        {name!r}: {source!r}," for name, source in sources.items()),
        *(["    })"] if not found.changed else ["    },"]),
        *(f"        {name}={new!r}," for name, (_, new) in found.changed.items()),
        *(["    )"] if found.changed else []),
    ]


def _compared(found: Derived, version: str, unseen: Sequence[str]) -> list[str]:
    """Where the repository has that version already: what its profile has that was not derived."""
    kept = PROFILES.get(version)
    if kept is None:
        return []
    lines = []
    for name in EngineProfile.__struct_fields__:
        mine, theirs = getattr(found.profile, name), getattr(kept, name)
        if mine == theirs or name in ("version", "sources"):
            continue
        likely = theirs in found.undecided.get(name, ())
        why = "read" if name in unseen else "as likely" if likely else "AGAINST what was seen"
        lines.append(f"    {name} = {theirs!r}   ({why})")
    if not lines:
        return [f"  the repository's profile of {version} says the same"]
    return [f"  the repository's profile of {version} has besides:", *lines]
