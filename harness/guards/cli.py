"""`refitcheck guard`: what can be known of a trainer before any engine runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.errors import UsageError
from harness.guards import subjects
from harness.guards.arguments import names_of, unknown_arguments
from harness.guards.child import MAX_LIMIT_S, ask_child
from harness.guards.subjects import Subject
from harness.settings import DEFAULT_VERSION
from harness.words import quoted

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Guards of a trainer's source and start.")

MAX_FILE = 1 << 20
Paths = Annotated[list[str] | None, typer.Option("--path", help="A folder to look in first; may be repeated.")]
Limit = Annotated[
    float, typer.Option("--limit", min=0.1, max=MAX_LIMIT_S, help="Real seconds that code of yours may take.")
]


@app.command()
def imports(
    driver: Annotated[list[str], typer.Argument(help="Modules of the process that decides and posts.")],
    worker: Annotated[
        list[str] | None, typer.Option(help="A module, package or pattern that workers alone have.")
    ] = None,
    missing: Annotated[
        list[str] | None, typer.Option(help="A package that is not installed beside the driver.")
    ] = None,
    path: Paths = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Read the source, import nothing.")] = False,
    limit: Limit = 60.0,
) -> int:
    """A driver imports neither its workers' modules nor what is not installed beside it: as read, and as executed."""
    if not worker and not missing:
        raise UsageError("nothing is forbidden: name modules with --worker, packages with --missing")
    subject = Subject(
        tuple(driver), tuple(worker or ()), tuple(missing or ()), executed=not read_only, paths=tuple(path or ())
    )
    how = "read" if read_only else "read and imported"
    return _told(subjects.import_findings(subject, limit), f"{len(driver)} driver modules {how}: nothing forbidden")


@app.command()
def actor(
    target: Annotated[list[str], typer.Argument(help="Classes of Ray actors, as package.module:Class.")],
    path: Paths = None,
    limit: Limit = 120.0,
) -> int:
    """No class among these becomes an asyncio actor, by Ray's own rule: its blocking methods would run on that loop."""
    _check_targets(target)
    found = subjects.actor_findings(Subject(actors=tuple(target), paths=tuple(path or ())), limit)
    return _told(found, f"{len(target)} classes: their methods run in threads")


@app.command()
def arguments(
    name: Annotated[
        list[str] | None, typer.Argument(help="Launch arguments: --tp-size=2 (after --), or tp_size.")
    ] = None,
    engine: Annotated[str, typer.Option(help="The SGLang version that is launched.")] = DEFAULT_VERSION,
    file: Annotated[Path | None, typer.Option(help="A JSON file: a mapping or a list of arguments.")] = None,
) -> int:
    """Every launch argument is one that this SGLang takes; of the others, which release had them."""
    names = [*(name or ()), *(_names_in(file) if file is not None else ())]
    if not names:
        raise UsageError("no arguments are given: name them, or give --file")
    found = unknown_arguments(engine.removeprefix("fake:"), names)
    return _told(found, f"{len(names_of(names))} arguments: {engine} takes them")


@app.command()
def environment(
    target: Annotated[str, typer.Argument(help="What makes the trainer's first process group, as module:function.")],
    variable: Annotated[
        list[str] | None, typer.Option(help="What the first group must find, as NCCL_CUMEM_ENABLE=0 (the default).")
    ] = None,
    path: Paths = None,
    limit: Limit = 60.0,
) -> int:
    """The environment is set before the first process group of torch.distributed, and not changed after it.

    NCCL reads NCCL_CUMEM_ENABLE once; engines set it to 0 where it is not set (entrypoints/engine.py:1876@0.5.22).
    """
    _check_targets([target])
    wanted = dict(map(_assigned, variable or ["NCCL_CUMEM_ENABLE=0"]))
    told = ask_child("environment", {"target": target, "variables": wanted}, tuple(path or ()), limit)
    if not told["groups"]:
        why = f": it raised {told['raised']}" if told.get("raised") else ""
        typer.echo(quoted(f"not judged: {target} made no process group{why}", 1000))
        return 2
    first: dict[str, Any] = told["groups"][0]
    found = [
        f"{first['place']}: the first group found {name}={first['found'][name]}, not {value}"
        for name, value in wanted.items()
        if first["found"][name] != value
    ]
    return _told([*found, *told["late"]], f"{len(told['groups'])} groups: {', '.join(wanted)} were set before them")


def _told(found: Sequence[str], well: str) -> int:
    """Exit code 1 with a line for each finding, else 0."""
    for line in found:
        typer.echo(f"✗ {quoted(line, 1000)}")
    if not found:
        typer.echo(f"ok  {well}")
    return int(bool(found))


def _check_targets(targets: Sequence[str]) -> None:
    for target in targets:
        module, colon, name = target.partition(":")
        if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
            raise UsageError(f"{quoted(target)!r} is not package.module:name")


def _assigned(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--variable {text}: not NAME=VALUE")
    return name, value


def _names_in(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE + 1)
        given = json.loads(content) if len(content) <= MAX_FILE else None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: no JSON: {error}") from None
    if not isinstance(given, (dict, list)) or not all(isinstance(one, str) for one in given):
        raise UsageError(f"{file}: neither a mapping nor a list of arguments' names, or larger than 1 MiB")
    return list(given)
