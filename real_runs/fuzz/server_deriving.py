"""The profile of a version, as far as a server shows it, from the profile of an older one.

The server is asked what its base may be asked, once as if sessions existed and once as if not. Then every field takes
every value that any known version has; the change after which the fake answers longest as the server did is kept, until
none helps. What no answer shows is named: that remains to be read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.profiles import PROFILES
from harness.errors import HarnessError
from real_runs.comparing import Difference, Exchange, differences
from real_runs.fuzz.cells import Cell
from real_runs.fuzz.deriving import Derived
from real_runs.fuzz.drawing import draw
from real_runs.fuzz.server_cells import operation
from real_runs.fuzz.server_search import CHUNK, comparable, ran_out
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.sides import DTYPE, FakeSide, Side
from real_runs.fuzz.tape import Tape, Taped
from real_runs.models import TinyModel

LONGEST = 12
"""Draws of one sequence: short ones have one cause each."""
SHOWN = (
    "structs", "flush_failure", "version_before_flush", "idle_ignores_queue_when_paused", "group_missing", "base64",
    "ping_follows_health", "checker_get", "checker_needs_cuda", "checker_compare_keeps_snapshot",
    "checker_long_mismatch", "parallelism_info", "model_info", "server_info_frontend", "abort_statuses",
    "generate_gate", "queue_abort_streams", "queue_abort_keeps_rid", "abort_remembered", "abort_once",
    "abort_unknown_rid_warns", "failed_generation", "needs_tokenizer",
)  # fmt: skip
"""The fields that answers over HTTP may show. Which routes there are goes by the version, not by a field."""
UNSEEN = tuple(field for field in EngineProfile.__struct_fields__ if field not in {*SHOWN, "version", "sources"})
"""The fields that they do not."""


def candidates() -> Mapping[str, Sequence[Any]]:
    """Every field that an answer may show, and the values that known versions have."""
    return {field: list(dict.fromkeys(getattr(one, field) for one in PROFILES.values())) for field in SHOWN}


@contextmanager
def standing_for(profile: EngineProfile) -> Iterator[None]:
    """In it, engines of this profile's version are of this profile."""
    before = PROFILES[profile.version]
    PROFILES[profile.version] = profile
    try:
        yield
    finally:
        PROFILES[profile.version] = before


def asked(base: EngineProfile, real: Side, model: TinyModel, steps: int, number: int, tape: Tape) -> list[Taped]:
    """What the server answers to `steps` calls or more; fewer where it died of one and is not ours to start."""
    fake = FakeSide(base.version, model, bypass=False)
    for session in ("refuse", "none"):
        kind = msgspec.structs.replace(base, session=session, selector=session != "none", flush_failure="refuse")
        words, chunk = ServerVocabulary(kind, bypass=False, tp=model.tp), number
        left, reached = steps // 2, set[Cell]()

        def one(
            numbers: list[int], words: ServerVocabulary = words, chunk: int = chunk, reached: set[Cell] = reached
        ) -> None:
            nonlocal left
            sequence = words.sequence(numbers, [cell for cell in words.cells if cell not in reached])
            expected = fake.perform(sequence)
            if left <= 0 or any(answer.ending == "timeout" for answer in expected.answers):
                return
            reached.update(zip(map(operation, expected.answers), fake.states, strict=True))
            got = real.perform(sequence)
            tape.add(Taped(seed=chunk, sequence=sequence, answers=list(got.answers), died=got.died))
            left -= len(got.answers)

        while left > 0:
            before = left
            try:
                draw(words.strategy(LONGEST), chunk, CHUNK, one)
            except HarnessError:
                if not tape.entries:
                    raise
                return tape.entries
            chunk += 1
            if left == before:
                break
    return tape.entries


class Likeness:
    """How long profiles answer as a server did."""

    def __init__(self, model: TinyModel, entries: Sequence[Taped]) -> None:
        self._model, self._entries = model, entries
        self.total = len(entries)

    def alike(self, profile: EngineProfile, entry: Taped) -> float:
        """The share of the calls before the first that differs: 1 where none does."""
        first = self._first(profile, entry)
        return 1.0 if first is None else max(first.number - 1, 0) / len(entry.answers)

    def _first(self, profile: EngineProfile, entry: Taped) -> Difference | None:
        side = FakeSide(profile.version, self._model, lambda: standing_for(profile), bypass=False)
        fake, real = _unnumbered(side.perform(entry.sequence)), _unnumbered(entry.exchange)
        found = differences(*comparable(real, fake), DTYPE)
        return found[0] if found and not ran_out(real, fake) else None

    def unlike(self, profile: EngineProfile) -> list[Difference]:
        """Where each sequence first differs, if it does."""
        firsts = (self._first(profile, entry) for entry in self._entries)
        return [first for first in firsts if first is not None]

    def each(self, profile: EngineProfile) -> list[float]:
        """Sequence by sequence."""
        return [self.alike(profile, entry) for entry in self._entries]

    def better(self, profile: EngineProfile, than: Sequence[float]) -> list[float] | None:
        """The same of a profile that agrees longer than that, on the whole; None of one that does not.

        Where it does not help with any sequence that differs, the others are not tried.
        """
        unlike = [n for n, share in enumerate(than) if share < 1]
        tried = {n: self.alike(profile, self._entries[n]) for n in unlike}
        if sum(tried.values()) <= sum(than[n] for n in unlike):
            return None
        found = [tried[n] if n in tried else self.alike(profile, entry) for n, entry in enumerate(self._entries)]
        return found if sum(found) > sum(than) else None


def derive(
    base: EngineProfile, model: TinyModel, entries: Sequence[Taped], say: Callable[[str], None] = lambda line: None
) -> Derived:
    """The profile of the server that answered `entries`, from that of an older version. What no field explains is
    said."""
    likeness = Likeness(model, entries)
    best, shares = base, likeness.each(base)
    while min(shares, default=1.0) < 1:
        say(f"  {sum(share == 1 for share in shares)} of {len(shares)} sequences answered alike")
        found = [(other, better) for _, other in _neighbours(best) if (better := likeness.better(other, shares))]
        if not found:
            break
        best, shares = max(found, key=lambda pair: sum(pair[1]))
    undecided: dict[str, list[Any]] = {}
    for name, other in _neighbours(best):
        if all(likeness.alike(other, entry) >= share for entry, share in zip(entries, shares, strict=True)):
            undecided.setdefault(name, []).append(getattr(other, name))
    changed = {
        name: (getattr(base, name), getattr(best, name))
        for name in candidates()
        if getattr(base, name) != getattr(best, name)
    }
    left = likeness.unlike(best)
    for kind, count in Counter((one.op, one.what, str(one.real)[:200], str(one.fake)[:200]) for one in left).items():
        say("  still unlike, {} times: {} {}\n    real {}\n    fake {}".format(count, *kind))
    return Derived(best, changed, undecided, len(left), len(shares))


def _unnumbered(exchange: Exchange) -> Exchange:
    """Without the numbers of source lines, which every version has others of."""
    answers = [
        replace(answer, body=json.loads(re.sub(r"\bline \d+", "line", json.dumps(answer.body))))
        for answer in exchange.answers
    ]
    return replace(exchange, answers=tuple(answers))


def _neighbours(base: EngineProfile) -> Iterable[tuple[str, EngineProfile]]:
    for name, values in candidates().items():
        for value in values:
            if value != getattr(base, name):
                yield name, msgspec.structs.replace(base, **{name: value})
