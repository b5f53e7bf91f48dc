"""The files of a training run, read once: what its checks look at."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.words import quoted
from real_runs.evidence.files import BadBundle
from real_runs.evidence.training import markers, metrics, told, values
from real_runs.evidence.training.markers import Doubt, Marker

LOG = "run.log"
MAX_FILE = 256 * 2**20
MAX_FILES = 20_000
MAX_TOTAL = 2 * 2**30

T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """One file. `written` in seconds since 1970. `data` of what no check reads is only its first byte."""

    data: bytes
    written: float
    size: int


class Unreadable(Exception):
    """A file of the run that cannot be taken for what it should be; one line."""


@dataclass(frozen=True)
class TrainingRun:
    """Relative name -> file: run.log and any logs/*.log, metrics.json, run.json, value_check.json, artefacts."""

    files: Mapping[str, Kept]
    _known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def told(self) -> told.Told:
        """run.json. Unreadable where it is none."""
        found: told.Told = self._decoded(told.NAME, told.Told)
        if found.schema != told.SCHEMA:
            raise Unreadable(f"{told.NAME}: schema {found.schema}, this refitcheck reads schema {told.SCHEMA}")
        return found

    @cached_property
    def value_checks(self) -> list[values.ValueCheck]:
        """value_check.json. Unreadable where it is none."""
        return list(self._decoded(values.NAME, list[values.ValueCheck]))

    @cached_property
    def series(self) -> Mapping[str, Mapping[str, Any]]:
        """metrics.json. Unreadable where it is none."""
        try:
            return metrics.parsed(self._data(metrics.NAME))
        except metrics.BadMetrics as error:
            raise Unreadable(str(error)) from None

    @cached_property
    def logs(self) -> Mapping[str, str]:
        """The driver's log first, then those of workers. Unreadable without the driver's, or where it is empty."""
        first = self._data(LOG)
        if not first.strip():
            raise Unreadable(f"{LOG} is empty")
        others = {name: kept.data for name, kept in sorted(self.files.items()) if name.startswith("logs/")}
        return {name: data.decode("utf-8", "replace") for name, data in {LOG: first, **others}.items()}

    @cached_property
    def seen(self) -> list[Marker | Doubt]:
        """Every marker and all that looks like one, the driver's log first. Unreadable where there are too many."""
        every = (one for name, text in self.logs.items() for one in markers.found(name, text))
        kept = list(islice(every, markers.MOST))
        if next(every, None) is not None:
            raise Unreadable(f"{LOG} and logs/: more than {markers.MOST} markers of refits")
        return kept

    def marked(self, kind: str) -> list[Marker]:
        """The markers of one kind."""
        return [one for one in self.seen if isinstance(one, Marker) and one.kind == kind]

    def _data(self, name: str) -> bytes:
        if name not in self.files:
            raise Unreadable(f"{name} is missing")
        return self.files[name].data

    def _decoded(self, name: str, kind: Any) -> Any:
        try:
            return msgspec.json.decode(self._data(name), type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise Unreadable(f"{name}: {quoted(error, 160)}") from None


def read_run(folder: Path) -> TrainingRun:
    """A run's folder. BadBundle for what cannot be read, links, and more than a run may leave."""
    files: dict[str, Kept] = {}
    total = 0
    try:
        if not folder.is_dir():
            raise BadBundle(f"{folder} is no folder of a run")
        for path, size, written in _plain_files(folder):
            name = str(path.relative_to(folder))
            total += size
            if size > MAX_FILE or total > MAX_TOTAL or len(files) >= MAX_FILES:
                most = f"{MAX_FILES} files, {MAX_FILE >> 20} MiB in one or {MAX_TOTAL >> 20} MiB in all"
                raise BadBundle(f"{folder}: more than {most}")
            files[name] = Kept(_content(path, name), written, size)
    except OSError as error:
        raise BadBundle(f"{error.filename or folder}: {error.strerror or error}") from None
    return TrainingRun(files)


def _plain_files(folder: Path) -> list[tuple[Path, int, float]]:
    out = []
    for root, _, names in os.walk(folder):
        for entry in os.scandir(root):
            if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
                raise BadBundle(f"{folder}: {quoted(Path(entry.path).relative_to(folder), 80)} is no plain file")
        for name in names:
            path = Path(root) / name
            known = path.stat()
            out.append((path, known.st_size, known.st_mtime))
    return sorted(out)


def _content(path: Path, name: str) -> bytes:
    if name in (LOG, metrics.NAME, told.NAME, values.NAME) or name.startswith("logs/"):
        return path.read_bytes()
    with path.open("rb") as file:
        return file.read(1)
