"""`refitcheck env ...` and `refitcheck real ...`: environments of real SGLang versions, recordings of their answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from harness.errors import RefitcheckError
from harness.settings import DEFAULT_VERSION
from real_runs import env as environments
from real_runs.megatron_bridge import environment as megatron_bridge
from real_runs.server import ServerError

app = typer.Typer(
    name="env",
    help="Environments of real SGLang versions and of megatron-bridge, cached and never shared with ours.",
    no_args_is_help=True,
)
real_app = typer.Typer(name="real", help="What a real SGLang answers, recorded.", no_args_is_help=True)

Version = Annotated[str, typer.Argument(help="An SGLang version, such as 0.5.23, or megatron-bridge.")]
USAGE, HARNESS_ERROR = 4, 3


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _fail(line: str, code: int) -> NoReturn:
    _say(f"refitcheck: {line}")
    raise typer.Exit(code)


@contextmanager
def _one_line() -> Iterator[None]:
    """What goes wrong as one line: 4 for what the caller can mend, 3 for what broke."""
    from real_runs.validation import NotGreen

    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}", USAGE)
    except RefitcheckError as error:
        _fail(str(error), error.exit_code)
    except (environments.EnvUsage, NotGreen, ValueError) as error:
        _fail(str(error), USAGE)
    except (environments.EnvError, ServerError, RuntimeError) as error:
        _fail(str(error), HARNESS_ERROR)


@app.command("make")
def make(
    version: Version,
    torch_index: Annotated[
        str | None,
        typer.Option("--torch-index", metavar="URL", help="A package index that has CPU builds of torch."),
    ] = None,
) -> None:
    """Make the environment of VERSION, unless it is there: about two minutes and 1.7 GB. Prints its folder.

    That of megatron-bridge takes 40 s and 0.9 GB.
    """
    with _one_line():
        if version == megatron_bridge.NAME:
            typer.echo(str(megatron_bridge.make(progress=_say, torch_index=torch_index)))
            return
        typer.echo(str(environments.make(version, progress=_say, torch_index=torch_index).folder))


@app.command("list")
def list_() -> None:
    """Every known version, and the folder of those that are ready."""
    for version in environments.SUPPORTED:
        with _one_line():
            env = environments.find(version)
        said = "not made" if env is None else f"{env.folder}{'  (given)' if env.given else ''}"
        typer.echo(f"{version:<15} {said}")
    with _one_line():
        python = megatron_bridge.find()
    typer.echo(f"{megatron_bridge.NAME:<15} {python.parent.parent if python else 'not made'}")


@app.command("remove")
def remove(version: Version) -> None:
    """Delete the cached environment of VERSION."""
    with _one_line():
        gone = megatron_bridge.remove() if version == megatron_bridge.NAME else environments.remove(version)
    typer.echo(f"{version}: {'removed' if gone else 'there was none'}")


@real_app.command("record")
def record(
    out: Annotated[Path, typer.Argument(help="The folder for the recordings.")],
    version: Annotated[str, typer.Option(help="The SGLang version.")] = "0.5.23",
    tp: Annotated[int, typer.Option(min=1, max=2, help="Tensor-parallel ranks.")] = 1,
    shape: Annotated[str, typer.Option(help="llama, qwen2 or qwen3.")] = "llama",
    tied: Annotated[bool, typer.Option(help="Tied embeddings.")] = False,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    flavour: Annotated[str, typer.Option(help="plain, api_key, admin_key, both_keys or checker_cuda.")] = "plain",
    fatal: Annotated[bool, typer.Option(help="The sequences that kill, instead of the others.")] = False,
    missing: Annotated[bool, typer.Option(help="Only what the file does not have, or has in another form.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Sequence name patterns (repeatable).")] = None,
) -> None:
    """Record what a real server answers to the catalogue: about 25 s a start, and a start per fatal sequence.

    The environment of the version must be there (refitcheck env make). A file that exists gets what is recorded now.
    Interrupted, it keeps the sequences that were whole; --missing goes on from there.
    """
    from real_runs.recorder import record_file

    chosen = tuple(only or ())
    with _one_line():
        path = record_file(
            out,
            version=version,
            tp=tp,
            shape=shape,
            tied=tied,
            dtype=dtype,
            flavour=flavour,
            wanted=lambda entry: (
                entry.fatal == fatal and (not chosen or any(fnmatch(entry.name, pattern) for pattern in chosen))
            ),
            suffix="-fatal" if fatal else "",
            progress=_say,
            missing=missing,
        )
    typer.echo(str(path))


@real_app.command("questions", hidden=True)
def write_questions() -> None:
    """Write anew what scenarios want to know of clean engines; needed when scenarios ask other prompts."""
    from real_runs import questions

    found = questions.collect()
    questions.write(found)
    typer.echo(f"{questions.path()}: {sum(map(len, found.values()))} questions")


@real_app.command("keep")
def keep(
    results: Annotated[Path, typer.Argument(help="The results.json of a run on a real lane.")],
    out: Annotated[Path | None, typer.Option(help="The folder of the records (default: this checkout's).")] = None,
    allow_more_unsupported: Annotated[
        bool, typer.Option(help="Even if the last record judged rules that are unsupported now.")
    ] = False,
) -> None:
    """Keep a green run on a real lane as a dated record."""
    from real_runs import validation

    with _one_line():
        for record in validation.from_results(validation.read_results(results)):
            folder = out or validation.records_folder()
            typer.echo(str(validation.keep(record, folder, allow_more_unsupported=allow_more_unsupported)))


@real_app.command("compare")
def compare(
    record: Annotated[list[Path] | None, typer.Argument(help="Dated records (default: all of this checkout).")] = None,
) -> None:
    """Run the fake as each record's real engine was run, and compare the verdicts. Exit code 1 when one differs."""
    from harness.suites import load_book
    from real_runs import validation
    from real_runs.agreement import agreement

    book, wrong = load_book(), False
    for path in record or sorted(validation.records_folder().glob("*.json")):
        with _one_line():
            found = agreement(validation.read(path), book)
        typer.echo(f"{path.stem}: {len(found.same)} rules have the verdict that they have on the fake")
        for rule, why in found.different.items():
            typer.echo(f"✗ {rule}: {why}")
        for word, others in (("unsupported", found.unsupported), ("new", found.new)):
            for rule, why in others.items():
                typer.echo(f"  {word:<11} {rule}: {why}")
        wrong = wrong or bool(found.different)
    if wrong:
        raise typer.Exit(1)


@real_app.command("records")
def records(
    folder: Annotated[Path | None, typer.Argument(help="The folder of the records (default: this checkout's).")] = None,
) -> None:
    """List the dated records, and whether the sources that judge have changed since."""
    from real_runs import validation

    now, where = validation.sources_hash(), folder or validation.records_folder()
    if not where.is_dir():
        _fail(f"{where}: no such folder", USAGE)
    for path in sorted(where.glob("*.json")):
        with _one_line():
            record = validation.read(path)
        held = sum(status == "held" for status in record.rules.values())
        same = "these sources" if record.sources == now else "older sources"
        typer.echo(
            f"{record.date}  {record.lane} {record.engine} tp {record.tp}  "
            f"held {held}  unsupported {len(record.unsupported)}  {record.seconds:.0f} s  {same}"
        )


@real_app.command("kits")
def run_kits(version: Version = DEFAULT_VERSION) -> None:
    """Run SGLang's own test kits, unmodified and in its environment, against the fake HTTP server of that version."""
    from real_runs.upstream import kits

    with _one_line():
        ran = kits.run(version)
    typer.echo(kits.table(ran))
    raise typer.Exit(0 if all(one.passed for one in ran) else 1)


@real_app.command("speed")
def speed(
    version: Annotated[str, typer.Option(help="The SGLang version that PYTHON has.")] = "0.5.23",
    python: Annotated[Path | None, typer.Option(help="The interpreter that has SGLang (default: this one).")] = None,
    site: Annotated[str, typer.Option(help="A folder of packages for it.")] = "",
    layers: Annotated[list[int] | None, typer.Option(min=1, help="Layers of the model (repeatable).")] = None,
    bucket: Annotated[list[int] | None, typer.Option(min=1, help="MiB of a bucket (repeatable).")] = None,
) -> None:
    """Time refits of a real engine on GPU 0 over CUDA IPC, beside a plain copy of the same bytes."""
    import tempfile

    from real_runs.sglang_gpu import gpu_server
    from real_runs.speed import measure, write_config

    for count in layers or [2, 16]:
        with _one_line(), tempfile.TemporaryDirectory(prefix="refitcheck-speed-") as name:
            folder = Path(name)
            env, spec = gpu_server(version, python, site, write_config(folder / "model", count))
            sizes = [size << 20 for size in bucket or [64, 512, 2048]]
            for found in measure(env, spec, folder / "server", count, sizes):
                typer.echo(found.line)
