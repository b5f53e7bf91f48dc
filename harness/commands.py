"""Commands of other packages, mounted by entry point: group `refitcheck.commands`, loaded only when they are called."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from harness.errors import UsageError
from harness.interrupts import raise_from_now_on
from harness.suites import load_point, named_points

GROUP = "refitcheck.commands"


class MountingGroup(TyperGroup):
    """Our own commands first, then those found by entry point: a `typer.Typer` or a function."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in named_points(GROUP) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One command; a mounted one is loaded now."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        point = named_points(GROUP).get(cmd_name)
        if point is None:
            return None
        command = _mounted(cmd_name, load_point(point))
        raise_from_now_on()  # what it will have to clean up is its own affair
        return command


def _mounted(name: str, found: Any) -> Any:
    if not isinstance(found, typer.Typer):
        if not callable(found):
            raise UsageError(f"command {name}: its entry point is neither a typer.Typer nor a function")
        app = typer.Typer(add_completion=False)
        app.command(name)(found)
        found = app
    command = typer.main.get_command(found)
    command.name = name
    return command
