"""Runs the cells: every driver on every version, in the same scenario, one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from harness.errors import HarnessError, RefitcheckError, UsageError
from harness.frameworks.cells import Cell, cell_of
from harness.history import History
from harness.history_files import write_history
from harness.runner import Runner, imported, outlived
from harness.settings import Settings
from harness.sut.adapters.table import FRAMEWORKS
from harness.sut.loader import installed
from harness.sut.options import check_options
from harness.units import Unit
from harness.words import told

SCENARIO = "refit/envelope/two-refits"
OVER_A_GROUP = "refit/coll/two-refits-over-a-group"
"""The same for a driver whose engines have GPUs of their own: they are ready to join groups."""
PREFIX = "harness.sut.adapters.suts:"


def named_suts(text: str) -> tuple[str, ...]:
    """Systems under test of `--sut`: names, `module:factory`, or `all` frameworks of the table."""
    out: list[str] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        out += FRAMEWORKS if name == "all" else [name]
    if not out:
        raise UsageError("--sut names no system under test; `all` is every framework of refitcheck's table")
    return tuple(dict.fromkeys(out))


def resolved(name: str) -> str:
    """What `--sut` of a run takes: a framework of the table is found also where its entry point is not installed."""
    if name in FRAMEWORKS and name not in installed():
        return PREFIX + name.replace("-", "_")
    return name


def scenario_of(sut: str) -> str:
    """What a driver's cells are made of."""
    return OVER_A_GROUP if sut in FRAMEWORKS and FRAMEWORKS[sut].transports == {"distributed"} else SCENARIO


def check_suts(suts: Sequence[str], hang_timeout: float, options_of: Callable[[str], dict[str, str]]) -> None:
    """UsageError, before the first cell, for a driver that is none, for an option that no driver of these has, and for
    a `checkout` that is not its checkout."""
    for sut in suts:
        with suppress(HarnessError), outlived():  # one that ends the process is told in its cell
            imported(resolved(sut), hang_timeout)
    with suppress(HarnessError), outlived():
        check_options({resolved(sut): options_of(sut) for sut in suts}, hang_timeout)


def cells(
    settings: Settings,
    suts: Sequence[str],
    versions: Sequence[str],
    *,
    histories: Path | None = None,
    options_of: Callable[[str], dict[str, str]] | None = None,
    any_tp: bool = False,
    runner_of: Callable[[Settings], Runner] = Runner,
) -> Iterator[Cell]:
    """Each cell as it ends; `options_of` gives the options of one driver (`checkout`). `any_tp`: nobody asked for a
    tensor parallel size, so a framework that drives one only gets that.

    UsageError for what the caller can mend, as a driver of urls on a lane without; never raises for what a driver does.
    """
    for sut in suts:
        for version in versions:
            options = dict(options_of(sut)) if options_of else {}
            tp = FRAMEWORKS[sut].tp if sut in FRAMEWORKS and any_tp else 0
            mine = dataclasses.replace(
                settings, suts=(resolved(sut),), versions=(version,), sut_options=options, tp=tp or settings.tp
            )
            try:
                yield _cell(mine, sut, version, histories, runner_of)
            except UsageError:
                raise
            except RefitcheckError as error:
                yield Cell(sut, version, "error", why=told(error))


def _cell(
    settings: Settings, sut: str, version: str, histories: Path | None, runner_of: Callable[[Settings], Runner]
) -> Cell:
    runner = runner_of(settings)
    scenario = scenario_of(sut)
    if sut in FRAMEWORKS and FRAMEWORKS[sut].engines:
        given = runner.book.scenarios[scenario]
        wanted = {**given.options, **FRAMEWORKS[sut].engines}
        runner.book.scenarios[scenario] = dataclasses.replace(given, options=wanted)
    kept: list[History] = []
    try:
        runner.on_history = lambda unit, faults, history: kept.append(history)
        report = runner.execute(Unit(scenario, version, runner.tp, settings.suts[0]))
    finally:
        runner.close()
    replay = settings.replay(tp=runner.tp, kind=runner.info.kind, scenarios=(scenario,))
    cell = cell_of(sut, version, report, kept[0] if kept else None, replay)
    return _with_history(cell, kept, histories)


def _with_history(cell: Cell, kept: list[History], histories: Path | None) -> Cell:
    if histories is None or not kept:
        return cell
    histories.mkdir(parents=True, exist_ok=True)
    path = histories / f"{cell.sut.replace(':', '.')}-{cell.version}.jsonl.xz"
    write_history(path, kept[0])
    return dataclasses.replace(cell, history=str(path))
