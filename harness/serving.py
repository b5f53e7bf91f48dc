"""`refitcheck serve`: the fake engine's own launcher, under our name."""

from __future__ import annotations

from harness.errors import UsageError


def serve(arguments: list[str]) -> int:
    """Hand `arguments` to `fakes.fronts.launch_server` and wait for the engine's end; UsageError for wrong ones."""
    from fakes.fronts.launch_server import main

    try:
        return int(main(arguments) or 0)
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            return 4 if end.code == 2 else int(end.code or 0)
        raise UsageError(str(end.code)) from end
