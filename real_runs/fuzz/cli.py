"""`refitcheck diff`: random calls to the fake and to SGLang, until nothing differs.

Exit codes: 0 nothing unexplained differs, 1 something does, 3 harness error, 4 usage.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from harness.errors import HarnessError, UsageError
from harness.outputs import Outputs
from harness.settings import DEFAULT_VERSION

if TYPE_CHECKING:
    from real_runs.fuzz.server_run import ServerSettings


def diff(
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Ask SGLang's weight-updater manager, without a server.")
    ] = False,
    against: Annotated[str, typer.Option(metavar="URL|sglang-cpu:VERSION", help="Ask this server over HTTP.")] = "",
    engine: Annotated[
        str, typer.Option("--engine", "--profile", help="The version of the fake, and of the oracle.")
    ] = DEFAULT_VERSION,
    checkout: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Take the oracle's manager from this checkout (miles).")
    ] = None,
    derive: Annotated[
        str, typer.Option(metavar="BASE", help="Derive its profile from that of version BASE instead.")
    ] = "",
    steps: Annotated[int, typer.Option(min=1, help="At least so many steps, or calls.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the first sequences.")] = 0,
    fatal: Annotated[int, typer.Option(min=0, help="Let so many sequences kill the server: each costs a start.")] = 0,
    tp: Annotated[int, typer.Option(min=1, max=2, help="Tensor-parallel ranks of the server.")] = 1,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="The server's tiny model: llama, qwen2 or qwen3, or one with -tied.")
    ] = "llama",
    time_limit: Annotated[float, typer.Option(min=1, help="Stop asking a server after so many seconds.")] = math.inf,
    tape: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep what a server answers here; the next run with it goes on from there."),
    ] = None,
    keep_record: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a validation record into this folder.")
    ] = None,
    keep_corpus: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write sequences with the oracle's answers into this folder.")
    ] = None,
    keep_test: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write every difference as a test into this folder.")
    ] = None,
) -> int:
    """Compare the fake with SGLang on random calls, legal and illegal; a difference comes as its shortest sequence."""
    if oracle == bool(against):
        raise UsageError("diff needs one of --oracle and --against URL|sglang-cpu:VERSION")
    for folder in (keep_record, keep_corpus, keep_test):  # now, and not after some hours
        Outputs(histories=folder).check()
    if against:
        from real_runs.fuzz.server_run import ServerSettings

        kept = (tape, keep_record, keep_corpus, keep_test)
        wanted = ServerSettings(against, derive or engine, steps, seed, fatal, tp, model, time_limit, *kept)
        return 0 if _server(wanted, derives=bool(derive)) else 1
    from real_runs.fuzz import oracle_run

    settings = oracle_run.OracleSettings(engine, steps, seed, checkout, keep_record, keep_corpus, keep_test)
    if derive:
        typer.echo(oracle_run.derived(settings, derive))
        return 0
    with oracle_run.start(settings) as process:
        same = oracle_run.run(settings, process, typer.echo)
    return 0 if same else 1


def _server(settings: ServerSettings, *, derives: bool) -> bool:
    from real_runs.env import EnvUsage
    from real_runs.fuzz import server_run
    from real_runs.server import ServerError

    if not settings.against.startswith(server_run.LANE):
        _check_url(settings.against)
    try:
        if derives:
            typer.echo(server_run.derived(settings, typer.echo))
            return True
        return server_run.run(settings, typer.echo)
    except EnvUsage as error:
        raise UsageError(str(error)) from None
    except ServerError as error:
        raise HarnessError(str(error)) from None


def _check_url(url: str) -> None:
    """UsageError for an address that cannot be parsed: `urlsplit` and its `port` raise ValueError."""
    try:
        _ = urlsplit(url if "//" in url else f"http://{url}").port
    except ValueError as error:
        raise UsageError(f"--against {url}: {error}") from None
