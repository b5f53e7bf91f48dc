"""A run against a real server: the two sides, the report with the cells, the finding as a sequence ready to be kept."""

from __future__ import annotations

import json
import pprint
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fakes.engine.profiles import UnknownVersion, profile
from harness.errors import UsageError
from real_runs import env as environments
from real_runs.comparing import Difference
from real_runs.fuzz import records
from real_runs.fuzz.known import Known, load
from real_runs.fuzz.server_search import Found, Limits, Search, hunt
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.sides import FakeSide, RealSide, attached, started, tiny
from real_runs.sequence import Sequence

Say = Callable[[str], None]
LANE = "sglang-cpu:"


@dataclass(frozen=True)
class ServerSettings:
    """Against what (`sglang-cpu:VERSION` or a URL), as which profile, how much."""

    against: str
    profile: str
    steps: int
    seed: int
    fatal: int = 0
    tp: int = 1
    keep_record: Path | None = None

    def replay(self) -> str:
        """The command that does it again."""
        fatal = f" --fatal {self.fatal}" if self.fatal else ""
        tp = f" --tp {self.tp}" if self.tp != 1 else ""
        much = f"{tp} --steps {self.steps}{fatal} --seed {self.seed}"
        return f"refitcheck diff --against {self.against} --profile {self.profile}{much}"


def real_side(settings: ServerSettings, say: Say) -> RealSide:
    """The real side. UsageError for a profile, a version or a URL that there is not."""
    try:
        profile(settings.profile)
    except UnknownVersion as error:
        raise UsageError(str(error)) from None
    model = tiny(settings.tp)
    if not settings.against.startswith(LANE):
        return attached(settings.against, settings.profile, model)
    version = settings.against.removeprefix(LANE)
    environments.pins(version)
    env = environments.find(version)
    if env is None:
        raise UsageError(f"there is no environment of SGLang {version}; `refitcheck env make {version}` makes it")
    return started(version, env, model, say)


def run(settings: ServerSettings, say: Say) -> bool:
    """Search, print, keep. Whether nothing unexplained differs."""
    sources = records.sources_hash()
    say(f"refitcheck diff   {settings.against} tp {settings.tp}   fake {settings.profile}   seed {settings.seed}")
    fake = FakeSide(settings.profile, tiny(settings.tp))
    entries = [entry for entry in load() if entry.lane == "server" and settings.profile in entry.versions]

    def explain(sequence: Sequence, difference: Difference) -> str | None:
        return next((entry.id for entry in entries if explains(entry, difference)), None)

    with closing(real_side(settings, say)) as real:
        search = hunt(
            ServerVocabulary(profile(settings.profile)),
            real,
            fake,
            Limits(settings.steps, settings.fatal),
            settings.seed,
            explain=explain,
            progress=lambda now: say(f"  {now.steps} calls · {now.sequences} sequences · {now.seconds:.0f} s"),
        )
    say(summary(search))
    for found in search.found:
        say(told(found, settings))
    if search.found:
        return False
    if settings.keep_record is not None:
        say(str(records.write(_record(settings, search, sources), settings.keep_record)))
    return True


def explains(entry: Known, difference: Difference) -> bool:
    """Whether an entry is about this difference."""

    def said(value: object) -> str:
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)

    return (
        re.fullmatch(entry.op, difference.op) is not None
        and re.fullmatch(entry.real, said(difference.real), re.DOTALL) is not None
        and re.fullmatch(entry.fake, said(difference.fake), re.DOTALL) is not None
    )


def summary(search: Search) -> str:
    """Counts, and the cells: every operation with the states that it was called in."""
    by_state: dict[str, int] = {}
    operations = sorted({operation for operation, _ in search.cells})
    for _, state in search.cells:
        by_state[state] = by_state.get(state, 0) + 1
    left = "".join(f"   {count} left out: {why}" for why, count in sorted(search.left_out.items()))
    explained = "".join(f"   {count} × {name}" for name, count in sorted(search.explained.items()))
    lines = [
        f"  {search.steps} calls in {search.sequences} sequences, {search.fatal} of them fatal{left}",
        f"  cells (operation × state) {len(search.cells)}: {len(operations)} operations in {len(by_state)} states",
        *(f"    {state:<32} {count:>3} operations" for state, count in sorted(by_state.items())),
        f"  unexplained differences {len(search.found)}{explained}",
    ]
    return "\n".join(lines)


def told(found: Found, settings: ServerSettings) -> str:
    """The shortest sequence, both answers, and the sequence as data, ready for the catalogue or a test."""
    steps = pprint.pformat(msgspec.to_builtins(found.sequence.steps), width=112, sort_dicts=False)
    lines = [f"✗ {settings.against} differs from fake {settings.profile}   seed {found.seed}"]
    lines += [f"  {number}. {_line(answer)}" for number, answer in enumerate(found.real.answers, 1)]
    lines += [f"  {difference}" for difference in found.differences]
    lines += [f"  replay  {settings.replay()}", "", "its steps, for a Sequence of real_runs/sequences:", "", steps]
    return "\n".join(lines)


def _line(answer: object) -> str:
    op, request = getattr(answer, "op", ""), getattr(answer, "request", None)
    status = getattr(answer, "status", None) or getattr(answer, "ending", "")
    return f"{op} {json.dumps(request, default=str)[:160]} -> {status}"


def _record(settings: ServerSettings, search: Search, sources: str) -> records.Validation:
    return records.Validation(
        kind=f"server-tp{settings.tp}",
        version=settings.against.removeprefix(LANE),
        profile=settings.profile,
        date=records.today(),
        seconds=round(search.seconds, 1),
        seed=settings.seed,
        steps=search.steps,
        sequences=search.sequences,
        deaths=search.fatal,
        cells=len(search.cells),
        reachable=None,
        missing=[],
        parts=["server"],
        digest="",
        sources=sources,
        explained=dict(search.explained),
    )
