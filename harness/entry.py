"""The script `refitcheck`: hears signals first, and only then imports the command line, which takes a while."""

from __future__ import annotations


def main() -> None:
    """Entry point."""
    from harness.interrupts import end_at_once

    end_at_once()
    from harness.cli import main as begin

    begin()
