"""What a served engine says in its log."""

from __future__ import annotations

import contextlib
import sys


def tell(text: str) -> None:
    """One line on stderr; a log that takes no more must not keep the engine from what it was about to do."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201  # a server's log
