"""`refitcheck mutate`: break code in memory, one mutant at a time, and show who noticed.

Exit codes: 0 all good, 1 a catalogue mutant survived or was misattributed (or the score is below --min-score),
3 a control failed, 4 usage, 130 interrupted.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

MOST_WORKERS = 256


def mutate(
    mutants: Annotated[
        list[str] | None, typer.Argument(metavar="[MUTANT]...", help="Only these catalogue or generic mutants.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Generic mutants of this module or package; may be repeated. Without it: the catalogue."),
    ] = None,
    tests: Annotated[
        list[str] | None,
        typer.Option(help="A pytest argument whose tests judge; may be repeated."),
    ] = None,
    generic: Annotated[
        bool,
        typer.Option("--generic", help="The generic set of [tool.refitcheck.mutate] in pyproject.toml."),
    ] = False,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Judge the catalogue's mutants of the fake engine by recordings."),
    ] = None,
    sut: Annotated[str, typer.Option(help="Judge with the refit-side rules, on this system under test.")] = "",
    engine: Annotated[str, typer.Option(help="Engine versions that the rules run on, as fake:0.5.23.")] = "",
    rule: Annotated[list[str] | None, typer.Option(help="Only this rule or family; may be repeated.")] = None,
    rules: Annotated[list[str] | None, typer.Option(help="A file or module with rules of your own.")] = None,
    catalogue: Annotated[list[str] | None, typer.Option(help="A file or module with mutants of your own.")] = None,
    exploration: Annotated[
        str, typer.Option(help="Fault exploration by the rules: off, sample or full (slow).")
    ] = "off",
    op: Annotated[list[str] | None, typer.Option(help="Only this generic operator; may be repeated.")] = None,
    sample: Annotated[int, typer.Option(min=0, help="Only N of the generic mutants, picked by the seed.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 20261130,
    since: Annotated[str, typer.Option(metavar="REV", help="Only what changed since this git revision touches.")] = "",
    workers: Annotated[str, typer.Option("-j", "--workers", help="Processes at a time, or auto.")] = "auto",
    time_budget: Annotated[
        float, typer.Option(min=0, help="Begin no more mutants so many seconds after the start.")
    ] = 0.0,
    report: Annotated[
        Path | None, typer.Option(help="Write mutation.json, mutation.html and matrix.html into this folder.")
    ] = None,
    explain: Annotated[
        str, typer.Option(metavar="MUTANT", help="Run this one mutant and show what its checks say.")
    ] = "",
    everything: Annotated[
        bool, typer.Option("--everything", help="Do not stop at the first kill; replay what is listed, too.")
    ] = False,
    rerun: Annotated[
        bool, typer.Option("--rerun/--no-rerun", help="Run survivors again in a fresh interpreter.")
    ] = True,
    screen: Annotated[
        bool,
        typer.Option(
            "--screen/--no-screen",
            help="Leave out checks where a mutant changes no value; share likely survivors.",
        ),
    ] = True,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Use results of earlier runs.")] = True,
    equivalents: Annotated[Path | None, typer.Option(help="The reviewed list of equivalent mutants.")] = None,
    min_score: Annotated[float, typer.Option(min=0, max=100, help="Exit 1 below this percentage of kills.")] = 0.0,
    list_: Annotated[bool, typer.Option("--list", help="List the mutants instead of running them.")] = False,
) -> int:
    """Break code in memory, one mutant at a time, run the rules and tests, and show who noticed."""
    began = time.monotonic()
    from harness.mutate import command, guard

    request = command.Request(
        mutants=tuple(mutants or ()),
        targets=tuple(target or ()),
        tests=tuple(tests or ()),
        generic=generic,
        replay=replay,
        sut=sut,
        engine=engine,
        rules=tuple(rule or ()),
        rule_files=tuple(rules or ()),
        catalogues=tuple(catalogue or ()),
        exploration=exploration,
        ops=tuple(op or ()),
        sample=sample,
        seed=seed,
        since=since,
        workers=_workers(workers),
        time_budget_s=time_budget,
        began=began,
        report=report,
        explain=explain,
        everything=everything,
        rerun=rerun,
        screen=screen,
        cache=cache,
        equivalents=equivalents,
        min_score=min_score,
        only_list=list_,
    )
    return guard.guarded(lambda: command.run(request))


def _workers(text: str) -> int:
    from harness.errors import UsageError
    from harness.words import quoted

    if text == "auto":
        affinity = getattr(os, "sched_getaffinity", None)
        return min(8, len(affinity(0)) if affinity else os.cpu_count() or 1)
    if not text.isascii() or not text.isdecimal() or not text.strip("0"):
        raise UsageError(f"-j {quoted(text, 40)!r} is neither a positive number nor auto")
    if len(text) > 9 or int(text) > MOST_WORKERS:
        raise UsageError(f"-j {quoted(text, 40)}: more than {MOST_WORKERS} processes")
    return int(text)
