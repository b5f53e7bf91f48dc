"""`refitcheck matrix` and `refitcheck upgrade`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from harness.errors import UsageError
from harness.settings import DEFAULT_VERSION, Settings

HANG_S = 10.0


def matrix(
    sut: Annotated[str, typer.Option(help="Drivers: names, package.module:factory, or all.")] = "all",
    engine: Annotated[str, typer.Option(help="Engine versions, as fake:0.5.20,0.5.23, or fake:all.")] = "fake:all",
    tp: Annotated[int, typer.Option(min=0, help="Tensor parallel size of each engine; 0 is the lane's default.")] = 0,
    lane: Annotated[str, typer.Option(help="Where engines come from.")] = "http",
    lane_option: Annotated[list[str] | None, typer.Option(help="An option of the lane, as time_scale=0.02.")] = None,
    sut_option: Annotated[
        list[str] | None, typer.Option(help="An option of a driver, as checkout=FOLDER or slime.checkout=FOLDER.")
    ] = None,
    checkout: Annotated[
        list[str] | None, typer.Option(help="Where a framework's checkout is, as slime=FOLDER; may be repeated.")
    ] = None,
    hang_timeout: Annotated[float, typer.Option(help="Real seconds beyond a deadline that make a hang.")] = HANG_S,
    out: Annotated[
        Path | None, typer.Option(help="Write matrix.json, matrix.md, matrix.html and histories here.")
    ] = None,
    expected: Annotated[
        bool, typer.Option("--expected", help="Say of each cell whether it is what was seen before; exit 1 if not.")
    ] = False,
) -> int:
    """One table, drivers by SGLang versions: works, refused loudly, hangs, silently stale, the engine dies."""
    from harness.frameworks import expected as before
    from harness.frameworks import pages, running

    out = None if out is None else out.absolute()  # a driver may go to another folder while it runs
    suts = running.named_suts(sut)
    settings, versions = _settings(suts, engine, tp, lane, tuple(lane_option or ()), hang_timeout)
    options = (*(sut_option or ()), *checkouts(tuple(checkout or ())))
    running.check_suts(suts, settings.hang_timeout, lambda name: options_for(name, options))
    if out is not None:
        pages.check_folder(out)
    found = []
    for cell in running.cells(
        settings,
        suts,
        versions,
        histories=out / "histories" if out is not None else None,
        options_of=lambda name: options_for(name, options),
        any_tp=tp == 0,
    ):
        typer.echo(
            f"{cell.sut:20} {cell.version:14} {cell.told}{': ' if cell.why else ''}{' '.join(cell.why.split())}"[:200]
        )
        if expected:
            cell = replace(cell, expected=before.compared(cell).told)
            typer.echo(f"{'':35} {cell.expected}")
        found.append(cell)
    typer.echo("\n" + pages.as_markdown(found).partition("\n\n")[0])
    if out is not None:
        for path in pages.write_all(found, out):
            typer.echo(str(path))
    if any(cell.outcome == "error" for cell in found):
        return 3
    if expected and any(before.compared(cell).differs for cell in found):
        return 1
    return 2 if all(cell.outcome == "unsupported" for cell in found) else 0


def upgrade(
    sut: Annotated[str, typer.Option(help="The driver.")],
    old: Annotated[str, typer.Option("--from", help="The SGLang version that it runs on.")],
    new: Annotated[str, typer.Option("--to", help="The version that it is to run on.")] = DEFAULT_VERSION,
    tp: Annotated[int, typer.Option(min=0, help="Tensor parallel size of each engine; 0 is the lane's default.")] = 0,
    lane: Annotated[str, typer.Option(help="Where engines come from.")] = "http",
    lane_option: Annotated[list[str] | None, typer.Option(help="An option of the lane, as time_scale=0.02.")] = None,
    sut_option: Annotated[list[str] | None, typer.Option(help="An option of the driver, as checkout=FOLDER.")] = None,
    checkout: Annotated[
        list[str] | None, typer.Option(help="Where a framework's checkout is, as slime=FOLDER; may be repeated.")
    ] = None,
    hang_timeout: Annotated[float, typer.Option(help="Real seconds beyond a deadline that make a hang.")] = HANG_S,
) -> int:
    """What breaks for one driver between two SGLang versions, and which call is missing, in plain words."""
    from harness.frameworks import running
    from harness.frameworks import upgrade as upgrading

    settings, versions = _settings((sut,), f"{old},{new}", tp, lane, tuple(lane_option or ()), hang_timeout)
    if len(versions) != 2:
        raise UsageError(f"--from {old} --to {new}: name two versions")
    options = (*(sut_option or ()), *checkouts(tuple(checkout or ())))
    running.check_suts((sut,), settings.hang_timeout, lambda name: options_for(name, options))
    before, after = running.cells(
        settings, (sut,), versions, options_of=lambda name: options_for(name, options), any_tp=tp == 0
    )
    for line in upgrading.told(before, after):
        typer.echo(line)
    return upgrading.breaks(before, after)


def checkouts(given: tuple[str, ...]) -> list[str]:
    """`NAME=FOLDER` of --checkout as options of drivers. UsageError for a name that no framework has."""
    from harness.sut.adapters.table import FRAMEWORKS

    out = []
    for text in given:
        name, equals, folder = text.partition("=")
        if not equals or not folder or name not in FRAMEWORKS:
            raise UsageError(f"--checkout {text!r} is not of the form NAME=FOLDER; names: {', '.join(FRAMEWORKS)}")
        out.append(f"{name}.checkout={folder}")
    return out


def options_for(sut: str, given: tuple[str, ...]) -> dict[str, str]:
    """Those of one driver: `checkout=X` is everybody's, `slime.checkout=X` that of slime and of slime-nccl, unless that
    has its own. UsageError for what is not of the form name=value."""
    from harness.sut.adapters.table import FRAMEWORKS

    project = FRAMEWORKS[sut].project if sut in FRAMEWORKS else sut
    found: dict[str, dict[str, str]] = {"": {}, project: {}, sut: {}}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--sut-option {text!r} is not of the form name=value")
        whose, _, option = name.rpartition(".")
        found.get(whose, {})[option.replace("-", "_")] = value
    return {**found[""], **found[project], **found[sut]}


def _settings(
    suts: tuple[str, ...], engine: str, tp: int, lane: str, lane_options: tuple[str, ...], hang_timeout: float
) -> tuple[Settings, tuple[str, ...]]:
    from harness.frameworks import running
    from harness.run import settings_from

    settings, _ = settings_from(
        engine=engine,
        lane=lane,
        sut=",".join(running.resolved(name) for name in suts),
        policy="resume",
        tp=tp,
        seed=Settings().seed,
        scenarios=(running.SCENARIO, running.OVER_A_GROUP),
        side="refit",
        exploration="off",
        hang_timeout=hang_timeout,
        lane_options=lane_options,
    )
    return settings, settings.versions
