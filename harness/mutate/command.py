"""What `refitcheck mutate` does with its options."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from harness.errors import UsageError
from harness.mutate import catalogue, config, equivalent, explain, fresh, guard, hosts, operators, replay, since, table
from harness.mutate.edits import Edits
from harness.mutate.mutant import Mutant
from harness.mutate.plan import Outcome, Plan
from harness.mutate.program import Program
from harness.mutate.screen import Bar, Log
from harness.mutate.session import Session
from harness.mutate.source import submodules
from harness.rules import Rule
from harness.settings import named
from harness.suites import load_book
from harness.sut.protocol import Policy


@dataclass(frozen=True)
class Request:
    """The options of one call, as the command line has them."""

    mutants: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    generic: bool = False
    replay: Path | None = None
    sut: str = ""
    engine: str = ""
    rules: tuple[str, ...] = ()
    rule_files: tuple[str, ...] = ()
    catalogues: tuple[str, ...] = ()
    exploration: str = "off"
    ops: tuple[str, ...] = ()
    sample: int = 0
    seed: int = 20261130
    since: str = ""
    workers: int = 1
    time_budget_s: float = 0.0
    began: float | None = None
    report: Path | None = None
    explain: str = ""
    everything: bool = False
    rerun: bool = True
    cache: bool = True
    equivalents: Path | None = None
    caches: tuple[str, ...] = ()
    min_score: float = 0.0
    screen: bool = True
    only_list: bool = False

    @property
    def of_catalogue(self) -> bool:
        """Catalogue mutants, not generic ones."""
        return not self.targets


def run(request: Request) -> int:
    """Check the options, run the session, print, write; returns the exit code."""
    for name in request.ops:
        if name not in operators.NAMES:
            raise UsageError(f"unknown operator {name!r}; known: {', '.join(operators.NAMES)}")
    if request.replay is not None and (request.targets or request.generic or request.tests or request.sut):
        raise UsageError("--replay judges the catalogue's engine mutants: it takes no --target, --tests, --sut")
    if request.replay is not None and request.rules:
        raise UsageError("--replay judges by recordings: it takes no --rule")
    if request.replay is not None and not request.replay.is_dir():
        raise UsageError(f"{request.replay}: no recordings (*.jsonl.xz)")
    if request.report is not None and request.report.exists() and not request.report.is_dir():
        raise UsageError(f"{request.report}: is not a folder")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: a user's own modules are found where the user is
    request, judged_by_rules = _configured(request)
    if request.explain:
        request = replace(request, mutants=(request.explain,), everything=True, rerun=False, cache=False)
    changes = since.changed_lines(request.since) if request.since else None
    places: dict[str, tuple[str, ...]] = {}
    known_equivalents = equivalent.load(request.equivalents) if request.equivalents else equivalent.Equivalents()
    modules = [m for name in request.targets for m in submodules(name)]
    known = catalogue.load(request.catalogues) if request.of_catalogue else {}
    if request.replay is not None:
        known = {m.id: m for m in replay.engine_side(known.values())}
    mutants = _of_rules(_chosen(known, request.mutants), request) if request.of_catalogue else []
    if request.of_catalogue:
        edited = [place for m in mutants if isinstance(m.op, Edits) for place in m.op.by_target(m.target)]
        if request.replay is not None:
            places = replay.places(mutants)
            mutants = replay.of_the_fake(mutants, places)
            edited += [place for found in places.values() for place in found]
        modules = sorted({*(place.partition(":")[0] for place in edited), *([] if request.replay else [CONTROLLED])})
        if request.only_list:
            return _list(mutants, request.rule_files)
    program = Program(modules, request.caches, remember=not request.of_catalogue)
    if not request.of_catalogue:
        mutants = _generic(request, program)
        if request.only_list:
            return _list(mutants)
    breaks = frozenset(rule for m in mutants for rule in m.breaks)
    described = _described(request, judged_by_rules, breaks)
    if request.explain:
        from harness.mutate.pytests import PytestCheck

        PytestCheck.verbose = True

    guard.stage("the import of what judges", guard.COLLECT_S)

    def session(host: Any) -> Outcome:
        guard.stage("")
        return _session(request, program, mutants, described, host, changes, known_equivalents, places)

    outcome = hosts.with_host(described, session)
    if request.explain:
        for text in explain.lines(mutants[0], outcome.results[0], program) if outcome.results else ():
            _say(text)
    else:
        for text in table.lines(outcome):
            _say(text)
    _write(request, outcome)
    return _code(request, outcome)


def _configured(request: Request) -> tuple[Request, bool]:
    """With the project's own set filled in, and whether rules judge."""
    found = config.load()
    request = replace(request, caches=() if request.of_catalogue and not request.generic else found.caches)
    if not request.generic:
        return request, bool(request.sut) or request.of_catalogue
    if not found.targets:
        raise UsageError("--generic: no [tool.refitcheck.mutate] with targets in a pyproject.toml here")
    request = replace(
        request,
        targets=request.targets or found.targets,
        tests=request.tests or found.tests,
        equivalents=request.equivalents or found.equivalents,
    )
    return request, found.rules or bool(request.sut)


def _described(request: Request, judged_by_rules: bool, breaks: frozenset[str]) -> dict[str, Any]:
    if request.replay is not None:
        return {"replay": str(request.replay.resolve())}
    described: dict[str, Any] = {}
    if request.tests:
        described["pytest"] = list(request.tests)
    if judged_by_rules:
        described["rules"] = {
            "engine": request.engine,
            "suts": [request.sut] if request.sut else [],
            "policies": list(get_args(Policy)),
            "rules": list(request.rules),
            "rule_files": list(request.rule_files),
            "side": "refit" if request.sut and not request.of_catalogue else "",
            "breaks": sorted(breaks),
            "exploration": request.exploration,
        }
    if not described:
        raise UsageError("nothing judges: give --tests, or --sut for the rules")
    return described


CONTROLLED = "harness.runner"  # every rule runs through it: where a session over planted defects alone has its controls


def _chosen(known: dict[str, Mutant], names: Sequence[str]) -> list[Mutant]:
    for name in names:
        if name not in known:
            raise UsageError(f"unknown mutant {name!r}; --list shows all")
    return [known[name] for name in names] or list(known.values())


def _of_rules(mutants: list[Mutant], request: Request) -> list[Mutant]:
    """Those that break one of these rules or families, all without any."""
    rules = request.rules
    found = [m for m in mutants if not rules or any(named(rule, rules) for rule in m.breaks)]
    if not found:
        _brought(request.rule_files)  # a file that cannot be read is the nearer mistake
        raise UsageError(f"no mutant breaks {', '.join(rules)}; --list shows what each one breaks")
    return found


def _generic(request: Request, program: Program) -> list[Mutant]:
    only = frozenset(request.ops)
    found = [s.mutant() for source in program.sources.values() for s in operators.sites(source, only)]
    if request.mutants:
        return _chosen({m.id: m for m in found}, request.mutants)
    if request.sample and request.sample < len(found):
        picked = set(random.Random(request.seed).sample(range(len(found)), request.sample))
        found = [m for i, m in enumerate(found) if i in picked]
    return found


def _list(mutants: Sequence[Mutant], rule_files: Sequence[str] = ()) -> int:
    for rule in _brought(rule_files):
        _say(f"{rule.id}  {rule.level}  {' '.join(rule.text.split())[:140]}")
    for mutant in mutants:
        breaks = f"  {','.join(sorted(mutant.breaks))}" if mutant.breaks else ""
        _say(f"{mutant.id}{breaks}  {' '.join(mutant.op.describe().split())[:140]}")
    return 0


def _brought(rule_files: Sequence[str]) -> list[Rule]:
    """The rules of these files."""
    if not rule_files:
        return []
    from harness.mutate.rule_checks import book_with

    known = set(load_book().rules)
    return [rule for rule in book_with(rule_files).rules.values() if rule.id not in known]


def _session(
    request: Request,
    program: Program,
    mutants: Sequence[Mutant],
    described: dict[str, Any],
    host: Any,
    changes: since.Changes | None,
    known: equivalent.Equivalents,
    places: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Outcome:
    screen = Bar() if sys.stderr.isatty() else Log()
    ask = {"host": described, "path": [str(Path.cwd())], "catalogues": list(request.catalogues)}
    plan = Plan(
        mutants,
        workers=request.workers,
        everything=request.everything,
        use_cache=request.cache,
        budget_s=request.time_budget_s,
        began=request.began,
        equivalents=known,
        rerun=fresh.rerunner(ask, request.workers) if request.rerun and request.replay is None else None,
        touched=since.touched(changes, program) if changes is not None else None,
        extra=(str(sorted(described.items())),),
        screen=request.screen,
        elsewhere=replay.elsewhere() if request.replay is not None and not request.everything else {},
        places=places,
        failing=CONTROLLED if request.of_catalogue and request.replay is None else "",
    )
    with screen if isinstance(screen, Bar) else nullcontext():
        outcome = Session(program, host, plan, screen).run()
    for text in screen.lines if isinstance(screen, Log) else ():
        print(f"refitcheck: {text}", file=sys.stderr)  # noqa: T201
    whole = not (request.sample or request.ops or request.mutants or request.since or request.rules)
    held = not outcome.interrupted and not any(c.wrong for c in outcome.controls)
    if request.replay is not None:
        replay.settle(outcome, replay.elsewhere(), whole=whole and not outcome.skipped + outcome.left)
    elif whole and held:  # else no mutant asked for an entry
        outcome.stale = known.stale(program.sources)
    return outcome


def _write(request: Request, outcome: Outcome) -> None:
    if request.report is None:
        return
    from harness.mutate import report

    texts: dict[str, str] = {}
    if outcome.rules:
        from harness.mutate.rule_checks import book_with

        book = book_with(request.rule_files)
        texts = {rule.id: rule.text for rule in book.rules.values() if rule.id in outcome.rules}
    written = report.write(outcome, request.report, rules=texts, title="refitcheck mutants")
    _say("written: " + " ".join(str(path) for path in written))


def _code(request: Request, outcome: Outcome) -> int:
    if outcome.interrupted:
        return 130
    if any(c.wrong for c in outcome.controls):
        return 3
    wrong = any(_wrong(outcome)) or bool(outcome.stale)
    generic = [r for r in outcome.results if r.generic]
    reached = table.score(generic)
    wanted = 0.0 if request.of_catalogue else request.min_score
    if wanted and reached is None:
        _say("--min-score: no generic mutant has a verdict, so there is no score to judge")
    untouched = bool(request.since) and not outcome.left  # no change, so nothing got worse
    low = bool(wanted) and (not untouched if reached is None else reached < wanted)
    return 1 if wrong or low else 0


def _wrong(outcome: Outcome) -> Iterator[bool]:
    for r in outcome.results:
        yield r.verdict == "error" or (not r.generic and r.verdict in ("survived", "misattributed", "not covered"))


def _say(text: str) -> None:
    from harness.console import Printer

    Printer(soft_wrap=True, emoji=False).print(text, markup=False)
