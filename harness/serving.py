"""`refitcheck serve`: the fake engine's own launcher, under our name."""

from __future__ import annotations

from pathlib import Path

from harness.errors import UsageError


def serve(arguments: list[str]) -> int:
    """Hand `arguments` to `fakes.fronts.launch_server` and wait for the engine's end; UsageError for wrong ones."""
    from fakes.fronts.launch_server import main

    arguments = [a.replace("--profile", "--fake-version", 1) if _is_profile(a) else a for a in arguments]
    try:
        return 4 if main(arguments) else 0  # what it refuses to start with is the caller's to mend
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            return 4 if end.code == 2 else int(end.code or 0)
        raise UsageError(str(end.code)) from end


def _is_profile(argument: str) -> bool:
    """Our name for the version; SGLang's launcher has no such option."""
    return argument == "--profile" or argument.startswith("--profile=")


def write_tiny_model(folder: Path, shape: str, seed: int) -> None:
    """UsageError for an unknown shape and a folder that cannot be written."""
    from fakes.tiny import tiny_config, tiny_weights, write_model

    try:
        config = tiny_config(shape)
        write_model(folder, config, tiny_weights(config, seed))
    except (ValueError, KeyError) as error:
        raise UsageError(f"--shape {shape}: {error}") from error
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
