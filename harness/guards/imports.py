"""What a driver must not import: the modules of its workers, and packages that are not installed beside it.

Of the driver modules themselves every import counts, also in functions and for type checkers: they are what is asked
about. Of what they import on the way, within their own top-level packages, only what runs when it is imported counts: a
function that imports its worker late is the usual way of keeping it out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from harness.errors import UsageError
from harness.guards.sources import Finder, Source
from harness.guards.spellings import Import, imports_of

MAX_MODULES = 20_000
WHEN = {"import": "", "call": ", inside a function", "types": ", for type checkers"}


@dataclass(frozen=True)
class Forbidden:
    """An import that must not be. `chain`: from the driver to the module that has it."""

    module: str
    path: str
    line: int
    text: str
    imported: str
    when: str
    chain: tuple[str, ...]

    def __str__(self) -> str:
        through = f" (through {' -> '.join(self.chain)})" if len(self.chain) > 1 else ""
        return f"{self.path}:{self.line}: {self.text}{WHEN[self.when]}: imports {self.imported}{through}"


def forbidden_imports(drivers: Sequence[str], forbidden: Sequence[str], paths: Sequence[str] = ()) -> list[Forbidden]:
    """Every import of `forbidden` that the modules `drivers` make, or have made by what they import.

    `forbidden` names modules (a package stands for all that is in it), or patterns with *. `paths`: folders to look in
    first. Nothing is imported. UsageError for a driver that is not found, or whose source is no Python.
    """
    finder = Finder(paths)
    tops = {driver.partition(".")[0] for driver in drivers}
    seen: set[str] = set()
    todo: deque[tuple[str, tuple[str, ...]]] = deque()
    for driver in drivers:
        if finder.source(driver) is None:
            raise UsageError(f"driver module {driver}: no Python source of it is found; --path names its folder")
        todo.append((driver, (driver,)))
    found: list[Forbidden] = []
    while todo:
        module, chain = todo.popleft()
        if module in seen or len(seen) >= MAX_MODULES:
            continue
        seen.add(module)
        source = finder.source(module)
        if source is None:
            continue
        mine = module in drivers
        todo.extend((parent, chain) for parent in _parents(module))  # they are executed first
        for one in imports_of(source):
            if one.optional or not (mine or one.when == "import"):
                continue
            bad = [name for name in one.names if _is(name, forbidden)]
            found.extend(_told(source, one, bad[-1], chain) for _ in bad[:1])
            if not bad and one.when != "types":
                inside = [name for name in one.names if name.partition(".")[0] in tops and name not in seen]
                todo.extend((name, (*chain, name)) for name in inside if finder.source(name) is not None)
    return found


def _parents(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def _is(name: str, forbidden: Sequence[str]) -> bool:
    """Whether a module is one of those, or lies in one."""
    return any(fnmatchcase(part, pattern) for pattern in forbidden for part in (name, *_parents(name)))


def _told(source: Source, one: Import, name: str, chain: tuple[str, ...]) -> Forbidden:
    return Forbidden(source.module, str(source.path), one.line, one.text, name, one.when, chain)
