"""Where the source of a module lies, found without importing anything: parents are not executed either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
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
            self._known[module] = _source(module, self._spec(parts)) if sound else None
        return self._known[module]

    def _spec(self, parts: Sequence[str]) -> ModuleSpec | None:
        try:
            # Of a name without dots nothing is imported to find it.
            spec = PathFinder.find_spec(parts[0], self._paths) if self._paths else None
            spec = spec or find_spec(parts[0])
            for depth in range(2, len(parts) + 1):
                if spec is None or spec.submodule_search_locations is None:
                    return None
                spec = PathFinder.find_spec(".".join(parts[:depth]), list(spec.submodule_search_locations))
        except (ImportError, ValueError, AttributeError):
            return None
        return spec


def _source(module: str, spec: ModuleSpec | None) -> Source | None:
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    package = module if spec.submodule_search_locations is not None else module.rpartition(".")[0]
    return Source(module, Path(spec.origin), package)
