"""`refitcheck adopt FOLDER`: an adapter that runs, a broken one beside it, a guide, a workflow."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated

import typer

from harness.errors import UsageError
from harness.whole_files import write_whole

TEMPLATE = Path(__file__).parent / "template"
FILES = {"my_trainer.txt": "my_trainer.py", "README.txt": "README.md", "refitcheck.yml.txt": "refitcheck.yml"}

PLACEHOLDER = "git+https://HOST/OWNER/refitcheck@COMMIT"


def adopt(folder: Annotated[str, typer.Argument(help="Where to write the template; made if it is not there.")]) -> int:
    """Write an adapter template that runs, with a guide, a broken example and a workflow for GitHub Actions."""
    if not folder:  # as a Path it would be the working folder
        raise UsageError("adopt needs the name of a folder; . is this one")
    written = write_template(Path(folder))
    for path in written:
        typer.echo(str(path))
    typer.echo(
        f"now: cd {shlex.quote(folder)} && refitcheck run --side refit --exploration off --sut my_trainer:Adapter"
    )
    return 0


def filled(text: str) -> str:
    """A file of the template with the place that pip can get this installation from."""
    source = installed_from()
    how = "Yours came from there." if source else "Put yours in place of the capitals."
    return text.replace("__SOURCE__", source or PLACEHOLDER).replace("__HOW__", how)


def installed_from() -> str:
    """What pip was given, `git+https://HOST/OWNER/NAME@COMMIT`; "" for a folder or a file, which no other machine has.

    Out of what pip wrote down (direct_url.json, PEP 610).
    """
    try:
        told = json.loads(distribution("refitcheck").read_text("direct_url.json") or "{}")
        commit = told["vcs_info"]["commit_id"]
        return f"{told['vcs_info']['vcs']}+{told['url']}@{commit}"
    except (PackageNotFoundError, ValueError, KeyError, TypeError):
        return ""


def write_template(folder: Path) -> list[Path]:
    """The files, all of them or none. UsageError for a file that is there already, before anything is written, and for
    a folder that cannot be written."""
    targets = {TEMPLATE / name: folder / target for name, target in FILES.items()}
    written: list[Path] = []
    made = False
    try:
        made = not folder.exists()
        for target in targets.values():
            if target.exists():  # raises for a name that is too long
                raise UsageError(f"{target} is there already: adopt writes into a folder without it")
        folder.mkdir(parents=True, exist_ok=True)
        for source, target in targets.items():
            write_whole(target, filled(source.read_text("utf-8")).encode())
            written.append(target)
    except OSError as error:
        with suppress(OSError):
            for target in written:
                target.unlink()
            if made:
                folder.rmdir()
        raise UsageError(f"{folder}: {error.strerror or error}") from error
    return list(targets.values())
