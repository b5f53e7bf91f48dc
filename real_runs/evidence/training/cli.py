"""`refitcheck evidence ...`: the evidence of a training run, validated fail-closed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from harness.errors import UsageError
from real_runs.evidence.cli import one_line

app = typer.Typer(
    name="evidence", help="Evidence of a training run: its log, metrics and provenance.", no_args_is_help=True
)
Run = Annotated[
    Path, typer.Argument(help="The run's folder: run.log, metrics.json, value_check.json, run.json, logs/.")
]


@app.command("validate")
def validate(
    run: Run,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write verdict and measures here.")] = None,
) -> None:
    """Refuse a training run whose evidence is unknown, missing or doubtful: a line for each reason, and exit code 1.

    The process's own exit is shown beside the verdict and is no part of it.
    """
    import msgspec

    from real_runs.evidence.training import validating
    from real_runs.evidence.training.run import Unreadable, read_run

    with one_line():
        files = read_run(run)
        if output is not None and output.exists() and any((run / name).samefile(output) for name in files.files):
            raise UsageError(f"--output {output} is part of the evidence in {run}: give a new file")
        refused = validating.refusals(files)
        try:
            ended: int | None = files.told.exit_code
        except Unreadable:
            ended = None
        measured = None if refused else validating.measured(files)
        if output is not None:
            told = {
                "verdict": "refused" if refused else "passed",
                "process_exit": ended,
                "refusals": [one._asdict() for one in refused],
                "measured": measured,
            }
            try:
                output.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n")
            except OSError as error:  # a full disk has no name
                raise UsageError(f"--output {output}: {error.strerror or error}") from None
    for one in refused:
        typer.echo(f"✗ {one.rule} {one.line}")
    if measured is not None:
        steady = "none" if measured.steady_s is None else f"{measured.steady_s:.3f} s"
        typer.echo(
            f"{measured.refits} refits in {measured.steps} steps: first {measured.first_s:.3f} s, steady {steady}"
        )
        for name, means in measured.windows.items():
            typer.echo(f"  {name:<28} {'  '.join(f'{mean:.4g}' for mean in means)}")
        typer.echo(f"  packages  {'  '.join(f'{name} {count}' for name, count in measured.packages.items())}")
    verdict = f"refused, {len(refused)} reasons" if refused else "passed"
    typer.echo(f"verdict {verdict}   exit of the process {'not recorded' if ended is None else ended}")
    if refused:
        raise typer.Exit(1)


@app.command("example")
def example(folder: Annotated[Path, typer.Argument(help="A new folder.")]) -> None:
    """Write a small run whose evidence stands: the form of every file."""
    from real_runs.evidence.training import good

    with one_line():
        if folder.exists():
            raise UsageError(f"{folder} is there already")
        for name, kept in good.files().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(kept.data)
            os.utime(path, (kept.written, kept.written))
        typer.echo(f"refitcheck evidence validate {folder}")
