"""`refitcheck run`: settings from options, the run with its progress, and everything that it leaves behind."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any

from harness.errors import UsageError
from harness.faults import parse_faults
from harness.lanes.info import LaneInfo, info_of
from harness.lanes.loader import load_lane
from harness.lanes.run_folder import sweep
from harness.outputs import HistoryFolder, Outputs
from harness.pool import any_foreign, execute
from harness.progress import progress
from harness.report.run import Run
from harness.results import EXIT, exit_code, results_of, unjudged, wanted
from harness.runner import imported
from harness.settings import (
    HANG_TIMEOUT_S,
    Settings,
    death_of,
    exploration_of,
    hang_timeout_of,
    named,
    policy_of,
    side_of,
    split_engines,
)
from harness.streams import complain
from harness.suites import Book, load_book
from harness.sut.options import check_options
from harness.units import Unit, UnitReport, units_of
from harness.versions import version_matches
from harness.words import visible

LEFT = ("refitcheck-disk-", "refitcheck-ranks-")
"""Temporary folders of one scenario, which a run that was killed leaves behind: the next one sweeps them."""
MOST = 256  # worker processes
WAITING = 4
"""Workers where most of a run's time is spent waiting for deadlines."""
HEADS = 4  # attention heads of every tiny model


def settings_from(
    *,
    engine: str,
    lane: str,
    sut: str,
    policy: str,
    tp: int,
    seed: int,
    rules: tuple[str, ...] = (),
    scenarios: tuple[str, ...] = (),
    fault: str = "",
    side: str = "",
    exploration: str = "",
    fatal_sample: int | None = None,
    allow_inconclusive: tuple[str, ...] = (),
    plant: str = "",
    hang_timeout: float = HANG_TIMEOUT_S,
    death: str = "raise",
    lane_options: tuple[str, ...] = (),
    sut_options: tuple[str, ...] = (),
) -> tuple[Settings, LaneInfo]:
    """Check every option. UsageError in one line for the first that is wrong."""
    options = dict(_option(text) for text in lane_options)
    loaded = load_lane(lane, options)
    try:
        info = info_of(loaded, tp)
        versions = split_engines(engine, info.versions, info.kind)
        chosen_side = side_of(side, info.side)
    finally:
        loaded.close()
    suts = tuple(name.strip() for name in sut.split(",") if name.strip())
    if not suts:
        raise UsageError("--sut names no system under test; see refitcheck doctor")
    limit = hang_timeout_of(hang_timeout)
    for_suts = dict(_option(text, "--sut-option") for text in sut_options)
    if not any_foreign(suts):  # else a worker does
        for name in suts:
            imported(name, limit)
        check_options(dict.fromkeys(suts, for_suts), limit)
    check_tp(tp)
    settings = Settings(
        lane=lane,
        versions=versions,
        suts=suts,
        policy=policy_of(policy),
        tp=info.tp,
        seed=seed,
        rules=rules,
        scenarios=scenarios,
        faults=parse_faults(fault),
        side=chosen_side,
        exploration=exploration_of(exploration, info.clock),
        fatal_sample=fatal_sample,
        plant=plant,
        hang_timeout=limit,
        death=death_of(death, lane, info.where),
        allow_inconclusive=allow_inconclusive,
        lane_options=options,
        sut_options=for_suts,
    )
    return settings, info


def check_tp(tp: int) -> None:
    """UsageError for a size that the tiny models cannot be cut into; 0 is the lane's own."""
    sizes = [size for size in range(1, HEADS + 1) if HEADS % size == 0]
    if tp != 0 and tp not in sizes:
        raise UsageError(f"--tp {tp}: the tiny models have {HEADS} attention heads, so it is one of {sizes}")


def check_names(settings: Settings, book: Book) -> None:
    """UsageError for a rule, family, scenario or plant that does not exist."""
    for name in (*settings.rules, *settings.allow_inconclusive):
        if not any(named(rule, (name,)) for rule in book.rules):
            raise UsageError(f"no rule or family {name!r}; see refitcheck list")
    for name in settings.scenarios:
        if name not in book.scenarios:
            raise UsageError(f"no scenario {name!r}; see refitcheck list --scenarios")
    if settings.plant and settings.plant not in book.plants:
        raise UsageError(f"no plant {settings.plant!r}; see refitcheck list")
    exercised = {rule for name in settings.scenarios for rule in book.rules_of(book.scenarios[name])}
    if settings.rules and settings.scenarios and not any(settings.wants(rule) for rule in exercised):
        raise UsageError(f"scenario {', '.join(settings.scenarios)} exercises none of {', '.join(settings.rules)}")
    if not wanted(settings, book):
        raise UsageError(f"nothing to run: {nothing_left(settings, book)}")


def nothing_left(settings: Settings, book: Book) -> str:
    """Why a selection leaves no rule to judge, and what to do."""
    what = ", ".join(settings.rules or settings.scenarios)
    rules = [rule for rule in book.rules.values() if settings.wants(rule.id)]
    spoken = [r for r in rules if any(version_matches(v, r.versions) for v in settings.versions)]
    if rules and not spoken:
        specifiers = " or ".join(dict.fromkeys(rule.versions for rule in rules))
        return f"{what} speaks of sglang {specifiers}, not of {', '.join(settings.versions)}; see --engine"
    scenarios = [s for s in book.scenarios.values() if not settings.scenarios or s.id in settings.scenarios]
    here = [s for s in scenarios if settings.side in (None, s.side)]
    if settings.side and not any(rule.id in book.rules_of(s) for s in here for rule in spoken):
        other = "refit" if settings.side == "engine" else "engine"
        return (
            f"{what} is exercised by scenarios of the side {other}, and this run of lane {settings.lane} has those of "
            f"the side {settings.side}; add --side {other} or --side both"
        )
    if spoken and all(rule.id in book.invariants for rule in spoken):
        return f"{what} judges runs with faults, and this one has none; add --exploration sample, or full, or a --fault"
    return f"no scenario exercises {what or 'any rule'} on engine {', '.join(settings.versions)}"


def workers_of(text: str, info: LaneInfo) -> int:
    """A positive number, or auto: one for each core that this process may use, at most 8.

    A real lane has one server, and so one worker. Where time is scaled, auto is one as well, since hurried seconds
    suffer when cores are short; unless they pass as slowly as real ones, which a run mostly waits through: then
    `WAITING` runs at once.
    """
    if text != "auto" and not (text.isascii() and text.isdecimal() and len(text) < 9 and int(text) > 0):
        raise UsageError(f"-n {text!r} is neither a positive number nor auto")
    if text != "auto" and int(text) > MOST:
        raise UsageError(f"-n {text}: at most {MOST} worker processes")
    if info.clock == "real":
        return 1
    if text != "auto":
        return int(text)
    if info.clock == "scaled":
        return WAITING if info.scale >= 1 else 1
    affinity = getattr(os, "sched_getaffinity", None)
    return min(8, len(affinity(0)) if affinity else os.cpu_count() or 1)


def run(settings: Settings, info: LaneInfo, outputs: Outputs, *, workers: int = 1) -> int:
    """Run, print, write; returns the exit code."""
    from harness.report import text

    book = load_book()
    check_names(settings, book)
    outputs.check()
    for prefix in LEFT:
        sweep(prefix)
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    units = units_of(settings, book, info.name, info.tp, shards=max(1, workers) * 4)
    folder = HistoryFolder(outputs.histories) if outputs.histories is not None else None
    reports = _execute(settings, units, workers, folder)
    order = {unit: number for number, unit in enumerate(units)}
    reports.sort(key=lambda report: order[report.unit])
    results = results_of(settings, book, info, reports)
    fired = {fault for report in reports for fault in report.fired}
    fell = any(report.fell for report in reports)  # what had met a call there is not known
    never = [str(fault) for fault in settings.faults if str(fault) not in fired and not fell]
    code = exit_code(settings, results) or (EXIT["inconclusive"] if never else 0)
    done = Run(settings, info, results, reports, time.perf_counter() - clock, code, started)
    written, unwritten = outputs.write(done)
    if folder is not None and folder.unwritten:
        unwritten.append(folder.unwritten)
    _say([*text.failures(done), *text.starting(done), text.summary(done, written, width=_width())])
    if never:
        _say([f"? --fault {', '.join(never)} met no call of the client: nothing was faulted there"])
    _say(
        [
            f"? nothing was judged of {n or 'the engines'}: every rule is unsupported"
            for n in unjudged(settings, results)
        ]
    )
    complain("\n".join(unwritten))
    return code or (UsageError.exit_code if unwritten else 0)  # a file that is missing hides no verdict


def _execute(settings: Settings, units: list[Unit], workers: int, folder: HistoryFolder | None) -> list[UnitReport]:
    reports: list[UnitReport] = []
    with progress(len(units)) as advance:
        for report in execute(settings, units, workers=workers, folder=folder):
            reports.append(report)
            advance(report)
    return reports


def _width() -> int:
    import shutil

    return max(60, min(140, shutil.get_terminal_size((100, 24)).columns))


def _say(blocks: list[str]) -> None:
    from rich.text import Text

    from harness.console import Printer

    console = Printer(soft_wrap=True)
    styles = {"✗": "bold red", "!": "bold magenta", "?": "bold yellow", "→": "bold cyan"}
    for block in blocks:
        body = Text(visible(block))
        style = styles.get(block[:1])
        if style:
            body.stylize(style, 0, len(block.splitlines()[0]))
        console.print(body)
        if style:
            console.print()


def _option(text: str, option: str = "--lane-option") -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} {text!r} is not of the form name=value")
    return name.replace("-", "_"), value
