"""A console of rich for standard output as it comes; see `harness.streams`."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from harness.streams import give_up
from harness.words import visible


class Printer(Console):
    """A console of rich that outlives its output; narrow where it is a terminal, 220 wide elsewhere."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, **options})
        if not self.is_terminal and "width" not in options:
            self.width = 220

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's; strings are cleared of what would steer the terminal."""
        cleared = [visible(o) if isinstance(o, str) else o for o in objects]
        try:
            super().print(*cleared, **options)
        except OSError as error:
            give_up(error)

    def on_broken_pipe(self) -> None:
        """Its reader went away: rich would exit with 1, which means violated."""
        give_up(BrokenPipeError())
