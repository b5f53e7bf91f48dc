"""A Python file or module of the user's that brings rules or mutants."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.mutate import guard


def load_object(text: str, attribute: str) -> Any:
    """`path/file.py`, `package.module` or either with `:name`; the object called `attribute` unless a name is given.

    UsageError with one line when it does not load.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        place, name = text, attribute
    with users_code(place, f"{place} does not import"):
        module = _file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    if not hasattr(module, name):
        raise UsageError(f"{place} has no {name!r}")
    return getattr(module, name)


@contextlib.contextmanager
def users_code(place: str, words: str) -> Iterator[None]:
    """The block runs what stands in a file of the user's, within `guard.IMPORT_S`.

    What it raises is a UsageError of one line that begins with `words` (sys.exit, too), what it prints goes to standard
    error, and a fork that comes out of it ends here.
    """
    own = os.getpid()
    try:
        with guard.staged(f"{place}: its import", guard.IMPORT_S), contextlib.redirect_stdout(sys.stderr):
            yield
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UsageError(f"{words}: {type(error).__name__}: {first_line(error)}") from error
    finally:
        if os.getpid() != own:
            os._exit(0)


def first_line(error: BaseException) -> str:
    """What an exception says, without its further lines."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def _file(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    name = f"refitcheck_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
