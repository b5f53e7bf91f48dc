"""What `refitcheck mutate` does with its options."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.mutate import equivalent, fresh, hosts, operators, table
from harness.mutate.mutant import Mutant
from harness.mutate.program import Program
from harness.mutate.screen import Bar, Quiet
from harness.mutate.session import Outcome, Plan, Session
from harness.mutate.source import TargetError, submodules


@dataclass(frozen=True)
class Request:
    """The options of one call, as the command line has them."""

    mutants: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    generic: bool = False
    sut: str = ""
    engine: str = ""
    rules: tuple[str, ...] = ()
    rule_files: tuple[str, ...] = ()
    catalogues: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    sample: int = 0
    seed: int = 20261130
    since: str = ""
    workers: int = 1
    time_budget_s: float = 0.0
    report: Path | None = None
    explain: str = ""
    everything: bool = False
    rerun: bool = True
    cache: bool = True
    equivalents: Path | None = None
    min_score: float = 0.0
    only_list: bool = False


def run(request: Request) -> int:
    """Check the options, run the session, print, write; returns the exit code."""
    for name in request.ops:
        if name not in operators.NAMES:
            raise UsageError(f"unknown operator {name!r}; known: {', '.join(operators.NAMES)}")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: a user's own modules are found where the user is
    modules = [m for name in request.targets for m in submodules(name)]
    described = _described(request)
    outcome = hosts.with_host(described, lambda host: _session(request, modules, described, host))
    if outcome is None:
        return 0
    for line in table.lines(outcome):
        print(line)  # noqa: T201
    return _code(request, outcome)


def _described(request: Request) -> dict[str, Any]:
    described: dict[str, Any] = {}
    if request.tests:
        described["pytest"] = list(request.tests)
    if not described:
        raise UsageError("nothing judges: give --tests, --sut, or mutants of a catalogue")
    return described


def _session(request: Request, modules: Sequence[str], described: dict[str, Any], host: Any) -> Outcome | None:
    program = Program(modules)
    mutants = _generic(request, program)
    if request.only_list:
        for mutant in mutants:
            print(f"{mutant.id}  {mutant.op.describe()}")  # noqa: T201
        return None
    known = equivalent.load(request.equivalents) if request.equivalents else equivalent.Equivalents()
    screen = Bar() if sys.stderr.isatty() else Quiet()
    rerun = None
    if request.rerun:
        ask = {"host": described, "generic": True, "path": [str(Path.cwd())], "catalogues": list(request.catalogues)}
        rerun = fresh.rerunner(ask, request.workers, screen.done)
    plan = Plan(
        mutants,
        workers=request.workers,
        everything=request.everything,
        use_cache=request.cache,
        budget_s=request.time_budget_s,
        equivalents=known,
        rerun=rerun,
    )
    with screen if isinstance(screen, Bar) else nullcontext():
        outcome = Session(program, host, plan, screen).run()
    if isinstance(screen, Quiet):
        for line in screen.lines:
            print(f"refitcheck: {line}", file=sys.stderr)  # noqa: T201
    return outcome


def _generic(request: Request, program: Program) -> list[Mutant]:
    only = frozenset(request.ops)
    found = [s.mutant() for source in program.sources.values() for s in operators.sites(source, only)]
    if request.mutants:
        by_id = {m.id: m for m in found}
        unknown = [name for name in request.mutants if name not in by_id]
        if unknown:
            raise TargetError(f"unknown mutant {unknown[0]!r}; --list shows all")
        return [by_id[name] for name in request.mutants]
    if request.sample and request.sample < len(found):
        picked = set(random.Random(request.seed).sample(range(len(found)), request.sample))
        found = [m for i, m in enumerate(found) if i in picked]
    return found


def _code(request: Request, outcome: Outcome) -> int:
    if outcome.interrupted:
        return 130
    if any(c.wrong for c in outcome.controls):
        return 3
    wrong = [r for r in outcome.results if not r.generic and r.verdict in ("survived", "misattributed", "error")]
    generic = [r for r in outcome.results if r.generic]
    if wrong or (generic and request.min_score and table.score(generic) < request.min_score):
        return 1
    return 0
