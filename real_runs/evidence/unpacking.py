"""What a run leaves in its folder, as a bundle keeps it: histories and logs plain, since the archive packs them all."""

from __future__ import annotations

import io
import lzma
from pathlib import Path

from real_runs.evidence.files import BadBundle, BoundedXz, read_files

_FOLDERS = ("histories", "logs")
_TOP = ("results.json", "environment.json", "summary.md", "junit.xml")


def unpacked(run: Path) -> dict[str, bytes]:
    """The files of a run's folder that belong to it; others are an error, so that nothing is taken along by chance."""
    out: dict[str, bytes] = {}
    for name, data in read_files(run).items():
        folder, _, _ = name.rpartition("/")
        if folder not in _FOLDERS and name not in _TOP:
            raise BadBundle(f"{run}: {name} is no file of a run")
        out[name.removesuffix(".xz")] = _plain(data, run, name) if name.endswith(".xz") else data
    return out


def _plain(data: bytes, run: Path, name: str) -> bytes:
    try:
        packed = BoundedXz(io.BytesIO(data), run)
        return b"".join(iter(lambda: packed.read(65536), b""))
    except (lzma.LZMAError, EOFError) as error:
        raise BadBundle(f"{run}: {name} is not a whole .xz file ({error})") from None
