"""`refitcheck doctor`: what would make a run fail, told before it does."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from harness.errors import NotAskedFor, RefitcheckError
from harness.lanes.info import info_of
from harness.lanes.loader import GROUP as LANES
from harness.lanes.loader import load_lane
from harness.report.run import our_version
from harness.shadow import HOME, shadowed
from harness.suites import load_book, load_point, named_points
from harness.sut.loader import installed, load_sut
from harness.words import one_line

LIBRARIES = ("numpy", "ml_dtypes", "msgspec", "torch", "fastapi", "uvicorn", "httpx", "pytest", "hypothesis")


def findings() -> Iterable[tuple[bool, str]]:
    """(fine, line) of everything that was looked at."""
    yield True, f"refitcheck {our_version()} in {HOME}, Python {platform.python_version()} on {platform.machine()}"
    yield True, "  ".join(f"{name} {_version(name)}" for name in LIBRARIES)
    shadows = shadowed()
    yield from ((False, line) for line in shadows)
    if not shadows:
        yield True, "no package of ours is shadowed"
    yield from _book()
    for name in named_points(LANES):
        yield _tried(f"lane {name}", partial(_lane, name))
    for name in installed():
        yield _tried(f"sut {name}", partial(_loads, load_sut, name))
    for name, point in named_points("refitcheck.commands").items():
        yield _tried(f"command {name}", partial(_loads, load_point, point))


def diagnose() -> int:
    """Print every finding; 0 when all is well, 4 otherwise."""
    from harness.console import Printer

    console = Printer(soft_wrap=True)
    sick = 0
    for fine, line in findings():
        sick += not fine
        console.print(f"{'ok ' if fine else 'BAD'}  {line}", markup=False)
    return 4 if sick else 0


def _book() -> Iterable[tuple[bool, str]]:
    try:
        book = load_book(check=False)
    except RefitcheckError as error:
        yield from ((False, line) for line in str(error).splitlines())
        return
    defects = book.defects()
    yield from ((False, line) for line in defects)
    if not defects:
        yield True, f"{len(book.rules)} rules, {len(book.scenarios)} scenarios, {len(book.plants)} plants fit together"


def _lane(name: str) -> str:
    lane = load_lane(name)
    try:
        info = info_of(lane)
    finally:
        lane.close()
    return f"{info.kind} engines {' '.join(info.versions)}, clock: {info.clock}, tp {info.tp}"


def _loads(load: Callable[[Any], object], what: Any) -> str:
    load(what)
    return "loads"


def _tried(what: str, attempt: Callable[[], str]) -> tuple[bool, str]:
    try:
        return True, f"{what}: {attempt()}"
    except NotAskedFor as error:
        return True, f"{what}: not asked for: {one_line(error)}"
    except Exception as error:
        return False, f"{what}: {one_line(error) or type(error).__name__}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
