"""Where the source of a module lies, found without importing anything: parents are not executed either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from harness.errors import UsageError

MAX_BYTES = 4 << 20  # of one source file; larger ones are data
PARTS = 64  # of a dotted name


@dataclass(frozen=True)
class Source:
    """One module's file. `package`: what its relative imports start from."""

    module: str
    path: Path
    package: str

    def text(self) -> str:
        """Its source. UsageError when it cannot be read, is no text, or is too large."""
        import tokenize

        try:
            if self.path.stat().st_size > MAX_BYTES:
                raise UsageError(f"{self.path}: more than {MAX_BYTES >> 20} MiB is no source file")
            with tokenize.open(self.path) as file:
                return file.read()
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            raise UsageError(f"{self.path}: {error}") from None


class Finder:
    """Modules in `paths` (folders), then where this interpreter finds them (editable installs too)."""

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self._paths = list(paths)
        self._known: dict[str, Source | None] = {}

    def source(self, module: str) -> Source | None:
        """The file of a module; None when there is none, or when it is not Python (built in, compiled, a namespace)."""
        if module not in self._known:
            parts = module.split(".")
            sound = len(parts) <= PARTS and all(part.isidentifier() for part in parts)
            file, where = self._find(parts) if sound else (None, [])
            package = module if where else module.rpartition(".")[0]
            self._known[module] = Source(module, file, package) if file is not None else None
        return self._known[module]

    def _find(self, parts: Sequence[str]) -> tuple[Path | None, list[str]]:
        """(its file, where its submodules are). Below the top they are looked up in folders: Python's own way would
        import the parents of a namespace package."""
        # Of a name without dots nothing is imported to find it.
        try:
            spec = PathFinder.find_spec(parts[0], self._paths) if self._paths else None
            spec = spec or find_spec(parts[0])
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            return None, []
        file = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
        where = list(spec.submodule_search_locations or ())
        for part in parts[1:]:
            file, where = _below(where, part)
        return file, where


def _below(folders: Sequence[str], name: str) -> tuple[Path | None, list[str]]:
    """A submodule in the folders of its package: a package, a module, or a namespace of several folders."""
    spaces = []
    for folder in folders:
        base = Path(folder) / name
        if (base / "__init__.py").is_file():
            return base / "__init__.py", [str(base)]
        if base.with_name(f"{name}.py").is_file():
            return base.with_name(f"{name}.py"), []
        if base.is_dir():
            spaces.append(str(base))
    return None, spaces
