"""A run against a real server: the two sides, the report with the cells, the finding as a sequence ready to be kept."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fakes.engine.profiles import UnknownVersion, profile
from harness.errors import UsageError
from real_runs import env as environments
from real_runs.attached import look
from real_runs.comparing import Difference
from real_runs.fuzz import records, regression
from real_runs.fuzz.cells import Cell
from real_runs.fuzz.known import Known, load
from real_runs.fuzz.server_cells import LIVES, why_not
from real_runs.fuzz.server_search import Limits, Search, hunt
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.server_telling import progress, reach, summary, told
from real_runs.fuzz.sides import FakeSide, RealSide, attached, started, tiny
from real_runs.fuzz.smallest import smallest
from real_runs.fuzz.tape import Tape, pack, telling
from real_runs.preflight import Finding
from real_runs.sequence import Sequence

Say = Callable[[str], None]
LANE = "sglang-cpu:"
FEW = 100
"""So many missing cells are looked into even where no record is kept: each costs the fake a run."""
SHOWN = 4
"""Findings of one run that are made small and told."""


@dataclass(frozen=True)
class ServerSettings:
    """Against what (`sglang-cpu:VERSION` or a URL), as which profile, how much, at most how long.

    `tape` is the file that keeps what the real one answered: a run with the same one goes on where it stopped.
    """

    against: str
    profile: str
    steps: int
    seed: int
    fatal: int = 0
    tp: int = 1
    model: str = "llama"
    seconds: float = float("inf")
    tape: Path | None = None
    keep_record: Path | None = None
    keep_corpus: Path | None = None
    keep_test: Path | None = None

    @property
    def kind(self) -> str:
        """What it is a run of, as records and corpora are named: server-tp1, server-tp2-qwen2-tied."""
        return f"server-tp{self.tp}{'' if self.model == 'llama' else f'-{self.model}'}"

    @property
    def subject(self) -> str:
        """Whose answers a tape keeps; of a server at a URL the profile stands for its version."""
        version = self.against.removeprefix(LANE) if self.against.startswith(LANE) else self.profile
        return f"{version} {self.kind}"

    def replay(self) -> str:
        """The command that does it again."""
        fatal = f" --fatal {self.fatal}" if self.fatal else ""
        tp = f" --tp {self.tp}" if self.tp != 1 else ""
        model = f" --model {self.model}" if self.model != "llama" else ""
        much = f"{tp}{model} --steps {self.steps}{fatal} --seed {self.seed}"
        return f"refitcheck diff --against {self.against} --profile {self.profile}{much}"


def subject(kind: str) -> tuple[int, str]:
    """The ranks and the model of a kind."""
    tp, _, model = kind.removeprefix("server-tp").partition("-")
    return int(tp), model or "llama"


def real_side(settings: ServerSettings, say: Say) -> RealSide:
    """The real side. UsageError for a profile, a version, a model or a URL that there is not."""
    try:
        profile(settings.profile)
    except UnknownVersion as error:
        raise UsageError(str(error)) from None
    model = tiny(settings.tp, settings.model)
    if not settings.against.startswith(LANE):
        side = attached(settings.against, settings.profile, model)
        url = settings.against if "//" in settings.against else f"http://{settings.against}"
        if isinstance(found := look(url), Finding):
            raise UsageError(f"--against {found.line}")
        return side
    version = settings.against.removeprefix(LANE)
    environments.pins(version)
    env = environments.find(version)
    if env is None:
        raise UsageError(f"there is no environment of SGLang {version}; `refitcheck env make {version}` makes it")
    return started(version, env, model, say)


def run(settings: ServerSettings, say: Say) -> bool:
    """Search, make small what was found, print, keep. Whether nothing unexplained differs."""
    sources, began = records.sources_hash(), time.monotonic()
    what = f"{settings.against} tp {settings.tp} {settings.model}"
    bypass, tape = settings.against.startswith(LANE), Tape(settings.tape, settings.subject)
    with closing(real_side(settings, say)) as real:
        say(f"refitcheck diff   {what}   fake {settings.profile}   seed {settings.seed}")
        fake = FakeSide(settings.profile, tiny(settings.tp, settings.model), bypass=bypass)
        words = ServerVocabulary(profile(settings.profile), bypass=bypass, tp=settings.tp)
        search = hunt(
            words,
            real,
            fake,
            Limits(settings.steps, settings.fatal, seconds=settings.seconds),
            settings.seed,
            explain=explainer(settings.profile),
            progress=lambda now: say(progress(now)),
            tape=tape,
        )
        left = settings.seconds - (time.monotonic() - began)
        shortest = [smallest(found, real, fake, seconds=left / 4) for found in list(search.found.values())[:SHOWN]]
    missing = dict.fromkeys([cell for cell in words.cells if cell not in search.cells], LIVES)
    if settings.keep_record is not None or len(missing) <= FEW:
        missing = why_not(words, fake, search.cells)
    say(summary(search, words, missing))
    for found in shortest:
        engine = (settings.profile, settings.tp, settings.model)
        say(told(found, settings.against, *engine, settings.replay()))
        if settings.keep_test is not None:
            content, name = regression.text(found, *engine), regression.name_of(found, *engine)
            say(str(regression.keep(settings.keep_test, name, content)))
    if settings.keep_corpus is not None:
        path = settings.keep_corpus / f"{settings.kind}-{settings.profile}.jsonl.xz"
        pack(path, telling(tape.entries, fake))
        say(str(path))
    if search.found:
        return False
    if settings.keep_record is not None:
        say(str(records.write(_record(settings, search, words, missing, sources), settings.keep_record)))
    return True


def derived(settings: ServerSettings, say: Say) -> str:
    """What the server shows of its profile, beginning with that of `settings.profile`; as text."""
    from real_runs.fuzz import deriving, server_deriving

    tape = Tape(settings.tape, settings.subject)
    with closing(real_side(settings, say)) as real:
        known, model = profile(settings.profile), tiny(settings.tp, settings.model)
        asked = server_deriving.asked(known, real, model, settings.steps, settings.seed, tape)
    say(f"  {sum(len(entry.answers) for entry in asked)} calls in {len(asked)} sequences")
    found = server_deriving.derive(known, model, asked, say)
    return deriving.told(found, settings.profile, settings.against.removeprefix(LANE), server_deriving.UNSEEN)


def explainer(version: str) -> Callable[[Sequence, Difference], str | None]:
    """Finds the known difference, of a server of `version`, that a difference is."""
    entries = [entry for entry in load() if entry.lane == "server" and version in entry.versions]

    def explain(sequence: Sequence, difference: Difference) -> str | None:
        return next((entry.id for entry in entries if explains(entry, difference)), None)

    return explain


def explains(entry: Known, difference: Difference) -> bool:
    """Whether an entry is about this difference."""

    def said(value: object) -> str:
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)

    return (
        re.fullmatch(entry.op, difference.op) is not None
        and re.fullmatch(entry.real, said(difference.real), re.DOTALL) is not None
        and re.fullmatch(entry.fake, said(difference.fake), re.DOTALL) is not None
    )


def _record(
    settings: ServerSettings, search: Search, words: ServerVocabulary, missing: Mapping[Cell, str], sources: str
) -> records.Validation:
    got, wanted = reach(words, missing)
    return records.Validation(
        kind=settings.kind,
        version=settings.against.removeprefix(LANE),
        profile=settings.profile,
        date=records.today(),
        seconds=round(search.seconds, 1),
        seed=settings.seed,
        steps=search.steps,
        sequences=search.sequences,
        deaths=search.fatal,
        cells=got,
        reachable=wanted,
        missing=[f"{name} while {state}: {why}" for (name, state), why in missing.items()],
        parts=["server"],
        digest="",
        sources=sources,
        explained=dict(search.explained),
        left_out=dict(search.left_out),
    )
