"""A run against the weight-updater oracle: which interpreter, which profile, how many steps; report and record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fakes.engine.profiles import UnknownVersion, profile
from harness.errors import UsageError
from real_runs import env as environments
from real_runs.fuzz import corpus, records, regression
from real_runs.fuzz.cells import coverage, reached
from real_runs.fuzz.fake_updater import FakeUpdater
from real_runs.fuzz.known import Explainer
from real_runs.fuzz.link import Oracle, OracleProcess, plain_python
from real_runs.fuzz.search import CHUNK, Found, search
from real_runs.fuzz.steps import Answer, Step, Vocabulary
from real_runs.fuzz.telling import name_of, told, whole_file

Say = Callable[[str], None]


@dataclass(frozen=True)
class OracleSettings:
    """What to ask and how much. `keep_record`, `keep_corpus` and `keep_test` are folders, or None."""

    version: str
    steps: int
    seed: int
    checkout: Path | None = None
    keep_record: Path | None = None
    keep_corpus: Path | None = None
    keep_test: Path | None = None

    def replay(self) -> str:
        """The command that does it again."""
        checkout = "" if self.checkout is None else f" --checkout {self.checkout}"
        return f"refitcheck diff --oracle --engine {self.version}{checkout} --steps {self.steps} --seed {self.seed}"


def start(settings: OracleSettings) -> OracleProcess:
    """The oracle's process. UsageError without an environment or a checkout that has the manager."""
    try:
        profile(settings.version)
    except UnknownVersion as error:
        raise UsageError(str(error)) from None
    if settings.checkout is not None:
        if not settings.checkout.is_dir():
            raise UsageError(f"{settings.checkout}: no such folder")
        return OracleProcess(plain_python(), settings.checkout)
    if settings.version == "miles":
        raise UsageError("miles has no wheel: give --checkout the folder of its sglang")
    env = environments.find(settings.version)
    if env is None:
        hint = f"refitcheck env make {settings.version}"
        raise UsageError(f"there is no environment of SGLang {settings.version}; `{hint}` makes it, or --checkout")
    return OracleProcess(env.python)


def derived(settings: OracleSettings, base: str) -> str:
    """What the oracle of `settings.version` shows of its profile, beginning with that of `base`; as text.

    UsageError for a base that has no profile.
    """
    from real_runs.fuzz import deriving

    try:
        known = profile(base)
    except UnknownVersion as error:
        raise UsageError(str(error)) from None
    with start(settings) as oracle:
        found = deriving.derive(known, oracle, number=settings.seed)
    return deriving.told(found, base, oracle.version)


def run(settings: OracleSettings, oracle: Oracle, say: Say) -> bool:
    """Search, print what was found, keep what is to be kept. Whether nothing unexplained differs."""
    version = settings.version
    chosen = profile(version)
    kept, sources = corpus.Corpus(), records.sources_hash()  # of what runs, whatever is edited meanwhile

    def cells(steps: list[Step], answers: list[Answer]) -> list[tuple[str, str]]:
        kept.offer(steps, answers)
        return reached(steps, answers)

    say(
        f"refitcheck diff   oracle {oracle.version} ({', '.join(oracle.parts)})   fake {version}   seed {settings.seed}"
    )
    found = search(
        Vocabulary(chosen, oracle.parts).strategy(),
        oracle.play,
        lambda steps: FakeUpdater(version).play(steps),
        steps=settings.steps,
        first_seed=settings.seed,
        explain=Explainer("oracle", version),
        cells=cells,
        progress=lambda now: say(f"  {now.steps} steps · {now.sequences} sequences · {now.seconds:.0f} s"),
    )
    got, wanted, missing = coverage(chosen, found.cells)
    say(_summary(found, got, wanted))
    for operation, state in missing:
        say(f"  not reached: {operation} while {state}")
    for divergence in found.divergences:
        say(told(divergence, version, settings.replay()))
        if settings.keep_test is not None:
            content = whole_file(divergence, version)
            say(str(regression.keep(settings.keep_test, name_of(divergence, version), content)))
    if found.divergences:
        return False
    if settings.keep_record is not None:
        say(str(records.write(_record(settings, oracle, found, sources), settings.keep_record)))
    if settings.keep_corpus is not None:
        path = settings.keep_corpus / f"oracle-{version}.jsonl.xz"
        corpus.write(path, kept.kept)
        say(str(path))
    return True


def _summary(found: Found, got: int, wanted: int) -> str:
    rate = found.sequences / max(found.seconds, 1e-9) * 60
    explained = "".join(f"   {count} × {name}" for name, count in sorted(found.explained.items()))
    return (
        f"  {found.steps} steps in {found.sequences} sequences, {found.deaths} of them fatal, "
        f"{rate:.0f} sequences a minute\n"
        f"  cells (operation × state) {got}/{wanted} = {math.floor(1000 * got / wanted) / 10} %\n"
        f"  unexplained differences {len(found.divergences)}{explained}"
    )


def _record(settings: OracleSettings, oracle: Oracle, found: Found, sources: str) -> records.Validation:
    got, wanted, missing = coverage(profile(settings.version), found.cells)
    return records.Validation(
        kind="oracle",
        version=oracle.version,
        profile=settings.version,
        date=records.today(),
        seconds=round(found.seconds, 1),
        seed=settings.seed,
        steps=found.steps,
        sequences=found.sequences,
        deaths=found.deaths,
        cells=got,
        reachable=wanted,
        missing=[f"{operation} while {state}" for operation, state in missing],
        parts=list(oracle.parts),
        digest=oracle.digest,
        sources=sources,
        explained=dict(found.explained),
    )


__all__ = ["CHUNK", "OracleSettings", "run", "start"]
