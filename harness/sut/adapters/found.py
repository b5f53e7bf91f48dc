"""Where a framework is: the folder that goes on the path of its processes, or why there is none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from harness.errors import HarnessError, Unsupported
from harness.sut.adapters.table import Framework


def located(framework: Framework, checkout: str) -> str:
    """The folder that holds the package. Unsupported when it is not installed, HarnessError for a wrong checkout."""
    if checkout:
        folder = Path(checkout).expanduser().resolve()
        if not folder.is_dir():
            raise HarnessError(f"{framework.name}: no folder {checkout}")
        if not (folder / framework.marker).is_file():
            raise HarnessError(f"{framework.name}: {checkout} is no checkout of it: there is no {framework.marker}")
        return str(folder)
    spec = importlib.util.find_spec(framework.package)
    if spec is None:
        raise Unsupported(f"{framework.name} is not installed: {framework.install}")
    places = [str(Path(place).parent) for place in spec.submodule_search_locations or ()]
    found = [place for place in places if (Path(place) / framework.marker).is_file()]
    if not found:
        raise HarnessError(f"{framework.name}: the installed {framework.package} has no {framework.marker}")
    return found[0]
