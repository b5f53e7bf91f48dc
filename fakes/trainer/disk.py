"""The file system that trainer and engines share: folders of safetensors files, one per refit, whole or not there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fakes.tiny import write_tensors

Record = Callable[[str, int, Mapping[str, Any]], None]


class SharedDisk:
    """Makes folders below one of its own. record(name, rank, data) gets `folder_published` and `folder_removed`."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._root: Path | None = None

    def create(self, name: str) -> Folder:
        """A new folder that nobody sees yet. ValueError where one of this name is, or for a name that is none."""
        if not name or Path(name).name != name or name.startswith("."):
            raise ValueError(f"{name!r} is no name of a folder")
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="refitcheck-disk-"))
        if (self._root / name).exists():
            raise ValueError(f"there is a folder {name} already")
        return Folder(self, self._root, name)

    def folders(self) -> list[str]:
        """Names of those that are published and not removed."""
        return sorted(p.name for p in self._root.iterdir() if p.name[0] != ".") if self._root is not None else []

    def close(self) -> None:
        """Remove everything."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None


class Folder:
    """One folder. `path` is where engines will find it, once it is published."""

    def __init__(self, disk: SharedDisk, root: Path, name: str) -> None:
        self.path = root / name
        self._disk = disk
        self._partial = root / f".{name}.partial"
        self._files = 0
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir()

    def write(self, named: Sequence[tuple[str, np.ndarray]]) -> None:
        """One more file with these tensors."""
        self._files += 1
        write_tensors(self._partial / f"model-{self._files:05}.safetensors", dict(named))

    def publish(self) -> Path:
        """From now on it is there, whole."""
        self._partial.rename(self.path)
        self._disk.record("folder_published", 0, {"path": str(self.path), "files": self._files})
        return self.path

    def remove(self) -> None:
        """It is gone, published or not. A second call does nothing."""
        shutil.rmtree(self._partial, ignore_errors=True)
        if self.path.exists():
            shutil.rmtree(self.path)
            self._disk.record("folder_removed", 0, {"path": str(self.path)})
