"""`refitcheck bundle ...`: evidence of real runs, made, checked, shown and judged again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from harness.errors import RefitcheckError

app = typer.Typer(
    name="bundle", help="Evidence of runs on real engines: made, checked, judged again.", no_args_is_help=True
)
Source = Annotated[Path, typer.Argument(help="A bundle: its .tar.xz, or a folder that holds its files.")]


@contextmanager
def one_line() -> Iterator[None]:
    """What goes wrong as one line and an exit code."""
    try:
        yield
    except OSError as error:
        typer.echo(f"refitcheck: {error.filename or ''}: {error.strerror or error}", err=True)
        raise typer.Exit(4) from None
    except RefitcheckError as error:
        typer.echo(f"refitcheck: {error}", err=True)
        raise typer.Exit(error.exit_code) from None


@app.command("make")
def make(
    run: Annotated[Path, typer.Argument(help="The folder of a run: results.json, environment.json, histories, logs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The archive to write.")] = Path("bundle.tar.xz"),
) -> None:
    """Make the bundle of RUN, which was written by a run on a real lane with --report RUN/results.json, --histories
    RUN/histories and --lane-option evidence=RUN. Prints its id."""
    from real_runs.evidence.checking import problems
    from real_runs.evidence.files import BadBundle, bundle_id, write_archive
    from real_runs.evidence.manifest import make_bundle

    with one_line():
        files = make_bundle(run)
        wrong = problems(files)
        if wrong:
            raise BadBundle(f"{run}: {'; '.join(wrong[:5])}")
        write_archive(files, out)
        typer.echo(f"{bundle_id(files)}  {out}")


@app.command("verify")
def verify(
    sources: Annotated[list[Path], typer.Argument(help="Bundles: a .tar.xz each, or a folder that holds the files.")],
    id: Annotated[str, typer.Option(help="The id that it must have, as make printed it.")] = "",
) -> None:
    """Check that bundles are whole, unedited and agree with themselves. Exit code 1 with a line for all that is wrong;
    of several bundles each is looked at, and the exit code is the worst."""
    if id and len(sources) > 1:
        typer.echo("refitcheck: --id is that of one bundle", err=True)
        raise typer.Exit(4)
    codes = []
    for source in sources:
        try:
            _verify(source, id, f"{source}: " if len(sources) > 1 else "")
        except typer.Exit as ended:
            codes.append(ended.exit_code)
    if codes:
        raise typer.Exit(max(codes))


def _verify(source: Path, id: str, which: str) -> None:
    """One bundle; `which` names it before each line where there are several. Ends with Exit unless it is whole."""
    from real_runs.evidence.checking import problems
    from real_runs.evidence.files import SUMS, bundle_id, read_files

    with one_line():
        files = read_files(source)
        wrong = problems(files)
        found = bundle_id(files) if SUMS in files else ""
        if id and found != id:
            wrong.append(f"it is bundle {found or '?'}, not {id}")
    for line in wrong:
        typer.echo(f"✗ {which}{line}")
    if wrong:
        raise typer.Exit(1)
    typer.echo(f"{which}{found}  {len(files)} files, whole")


@app.command("show")
def show(source: Source) -> None:
    """What a bundle is of, from its manifest and results; says nothing about whether it is true: see verify."""
    from real_runs.evidence.files import read_files
    from real_runs.evidence.manifest import RESULTS, loaded, read_manifest

    with one_line():
        files = read_files(source)
        head, results = read_manifest(files), loaded(files, RESULTS)
    gpus = ", ".join(f"{gpu.get('name')} (driver {gpu.get('driver')})" for gpu in head.gpus) or "no GPU"
    revision = f"revision {head.revision}{' dirty' if head.dirty else ''}" if head.revision else "revision unknown"
    typer.echo(f"{head.lane}  sglang:{','.join(head.engines)}  tp {head.tp}  side {head.side}  seed {head.seed}")
    typer.echo(f"{head.started}  {head.seconds:.0f} s  exit code {head.exit_code}  {head.servers} server starts")
    typer.echo(f"{len(head.gpus)} x {gpus}" if len(set(map(str, head.gpus))) < 2 and head.gpus else gpus)
    typer.echo(f"torch {head.torch}  CUDA {head.cuda}  NCCL {head.nccl}  {head.packages} packages")
    typer.echo(f"refitcheck {head.refitcheck}  {revision}  sources {head.sources}")
    typer.echo("  ".join(f"{name} {count}" for name, count in head.counts.items()))
    for entry in results["results"]:
        if entry["status"] != "held":
            typer.echo(
                f"  {entry['status']:<12} {entry['rule']}: {entry['error'] or entry['actual'] or entry['missing']}"
            )


@app.command("rejudge")
def rejudge(source: Source) -> None:
    """Today's rules over a bundle's histories. Exit code 1 when a verdict is another than then."""
    from real_runs.evidence.checking import problems
    from real_runs.evidence.files import BadBundle, read_files
    from real_runs.evidence.rejudging import rejudge as again

    with one_line():
        files = read_files(source)
        wrong = problems(files)
        if wrong:
            raise BadBundle(f"{source}: {'; '.join(wrong[:3])} (see refitcheck bundle verify)")
        found = again(files)
    typer.echo(f"{len(found.same)} verdicts are as they were")
    for rule, why in found.different.items():
        typer.echo(f"✗ {rule}: {why}")
    for word, rules in (("new", found.new), ("gone", found.gone)):
        if rules:
            typer.echo(f"  {word:<5} {' '.join(rules)}")
    if found.different:
        raise typer.Exit(1)


@app.command("compare")
def compare(source: Source) -> None:
    """The verdicts of a bundle beside those of the fake in the same scenarios. Exit code 1 when one differs."""
    from real_runs.evidence.comparing import compare as beside
    from real_runs.evidence.files import read_files

    with one_line():
        found = beside(read_files(source))
    typer.echo(f"{len(found.same)} rules have the verdict that they have on the fake")
    for rule, why in found.different.items():
        typer.echo(f"✗ {rule}: {why}")
    typer.echo(f"  {len(found.unsupported)} unsupported on the real lane, {len(found.new)} newer than the bundle")
    if found.different:
        raise typer.Exit(1)
