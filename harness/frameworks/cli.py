"""`refitcheck matrix` and `refitcheck upgrade`."""

from __future__ import annotations

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
    hang_timeout: Annotated[float, typer.Option(help="Real seconds beyond a deadline that make a hang.")] = HANG_S,
    out: Annotated[
        Path | None, typer.Option(help="Write matrix.json, matrix.md, matrix.html and histories here.")
    ] = None,
) -> int:
    """One table, drivers by SGLang versions: works, refused loudly, hangs, silently stale, the engine dies."""
    from harness.frameworks import pages, running

    out = None if out is None else out.absolute()  # a driver may go to another folder while it runs
    suts = running.named_suts(sut)
    settings, versions = _settings(suts, engine, tp, lane, tuple(lane_option or ()), hang_timeout)
    options = tuple(sut_option or ())
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
    ):
        typer.echo(
            f"{cell.sut:20} {cell.version:14} {cell.told}{': ' if cell.why else ''}{' '.join(cell.why.split())}"[:200]
        )
        found.append(cell)
    typer.echo("\n" + pages.as_markdown(found).partition("\n\n")[0])
    if out is not None:
        for path in pages.write_all(found, out):
            typer.echo(str(path))
    return 3 if any(cell.outcome == "error" for cell in found) else 0


def upgrade(
    sut: Annotated[str, typer.Option(help="The driver.")],
    old: Annotated[str, typer.Option("--from", help="The SGLang version that it runs on.")],
    new: Annotated[str, typer.Option("--to", help="The version that it is to run on.")] = DEFAULT_VERSION,
    tp: Annotated[int, typer.Option(min=0, help="Tensor parallel size of each engine; 0 is the lane's default.")] = 0,
    lane: Annotated[str, typer.Option(help="Where engines come from.")] = "http",
    lane_option: Annotated[list[str] | None, typer.Option(help="An option of the lane, as time_scale=0.02.")] = None,
    sut_option: Annotated[list[str] | None, typer.Option(help="An option of the driver, as checkout=FOLDER.")] = None,
    hang_timeout: Annotated[float, typer.Option(help="Real seconds beyond a deadline that make a hang.")] = HANG_S,
) -> int:
    """What breaks for one driver between two SGLang versions, and which call is missing, in plain words."""
    from harness.frameworks import running
    from harness.frameworks import upgrade as upgrading

    settings, versions = _settings((sut,), f"{old},{new}", tp, lane, tuple(lane_option or ()), hang_timeout)
    if len(versions) != 2:
        raise UsageError(f"--from {old} --to {new}: name two versions")
    options = tuple(sut_option or ())
    running.check_suts((sut,), settings.hang_timeout, lambda name: options_for(name, options))
    before, after = running.cells(settings, (sut,), versions, options_of=lambda name: options_for(name, options))
    for line in upgrading.told(before, after):
        typer.echo(line)
    return upgrading.breaks(before, after)


def options_for(sut: str, given: tuple[str, ...]) -> dict[str, str]:
    """`checkout=X` is everybody's, `slime.checkout=X` only slime's. UsageError for what is not of that form."""
    out: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--sut-option {text!r} is not of the form name=value")
        whose, dot, option = name.rpartition(".")
        if not dot or whose == sut:
            out[option.replace("-", "_")] = value
    return out


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
        scenarios=(running.SCENARIO,),
        side="refit",
        exploration="off",
        hang_timeout=hang_timeout,
        lane_options=lane_options,
    )
    return settings, settings.versions
