"""`refitcheck launch`: recipes of real runs, shown, rendered and started."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from real_runs.evidence.cli import one_line

STARTERS = {"local": ["bash"], "ray": ["bash"], "slurm": ["sbatch"]}


def launch(
    recipe: Annotated[str, typer.Argument(help="A recipe's name; without one they are listed.")] = "",
    on: Annotated[str, typer.Option("--on", help="local, ray or slurm.")] = "local",
    run: Annotated[Path, typer.Option("--run", help="The fresh folder of the run.")] = Path("run"),
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")] = None,
    address: Annotated[str, typer.Option(help="The Ray cluster of --on ray, http://HOST:8265.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every command and start nothing.")] = False,
    write: Annotated[Path | None, typer.Option(help="Write the launcher here, executable, and start nothing.")] = None,
) -> None:
    """Start a real run by its recipe, or show how it would be."""
    from real_runs.launching.launchers import Launch
    from real_runs.launching.recipes import book, parsed

    with one_line():
        if not recipe:
            for name, found in book().recipe.items():
                size = f"{found.nodes} x {found.gpus_per_node} GPUs"
                typer.echo(
                    f"{name:<16}{size:<14}world_size {found.world_size:<4}engines {found.engines:<4}{found.about}"
                )
            return
        made = Launch(recipe, on, str(run), parsed(sets or []), address)  # type: ignore[arg-type]  # it looks
        if dry_run:
            typer.echo(made.script(), nl=False)
            return
        path = write or run.with_name(f"{run.name}.sh")
        made.write(path)
        typer.echo(str(path))
        if write is None:
            done = subprocess.run([*STARTERS[on], str(path)], check=False)
            raise typer.Exit(done.returncode)
