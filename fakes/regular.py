"""Reading a file that somebody else named: a regular one, of a bounded size, without ever waiting for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MAX_JSON_BYTES = 1 << 20  # of a configuration


def read_regular(path: str | Path, most: int) -> bytes:
    """All bytes of a file. OSError as Python has it; ValueError for a pipe, a device, a folder, or more than `most`.

    A link is followed, as every reader of checkpoints does; what it leads to has to be a regular file as well.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # of a pipe it would wait for a writer
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            content = b"" if found.st_size > most else file.read(most + 1)
    finally:
        os.close(descriptor)
    if found.st_size > most or len(content) > most:
        raise ValueError(f"{path} is larger than {most} bytes")
    return content
