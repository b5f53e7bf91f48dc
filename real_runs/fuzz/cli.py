"""`refitcheck diff`: random calls to the fake and to SGLang, until nothing differs.

Exit codes: 0 nothing unexplained differs, 1 something does, 3 harness error, 4 usage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.errors import UsageError
from harness.settings import DEFAULT_VERSION


def diff(
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Ask SGLang's weight-updater manager, without a server.")
    ] = False,
    engine: Annotated[str, typer.Option(help="The version of the fake, and of the oracle.")] = DEFAULT_VERSION,
    checkout: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Take the manager from this checkout (miles).")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="At least so many steps.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the first sequences.")] = 0,
    keep_record: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a validation record into this folder.")
    ] = None,
    keep_corpus: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write sequences with the real answers into this folder.")
    ] = None,
) -> int:
    """Compare the fake with SGLang on random calls, legal and illegal; a difference is printed as a ready test."""
    if not oracle:
        raise UsageError("diff needs --oracle")
    from real_runs.fuzz import oracle_run

    settings = oracle_run.OracleSettings(engine, steps, seed, checkout, keep_record, keep_corpus)
    with oracle_run.start(settings) as process:
        same = oracle_run.run(settings, process, typer.echo)
    return 0 if same else 1
