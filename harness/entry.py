"""The script `refitcheck`: hears signals as soon as it is imported, and only then imports the command line."""

from __future__ import annotations

import os

try:
    from harness.interrupts import end_at_once

    end_at_once()
except KeyboardInterrupt:  # before that, Ctrl-C is Python's
    os.write(2, b"refitcheck: interrupted\n")
    os._exit(130)


def main() -> None:
    """Entry point."""
    from harness.cli import main as begin

    begin()
