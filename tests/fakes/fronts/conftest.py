from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from fakes.fronts.process import ServerProcess
from fakes.tiny import tiny_config, tiny_weights, write_model

ROOT = Path(__file__).parents[3]
SCRIPTED = "tests.fakes.scripted:ScriptedCore"


def ended(pid: int, timeout_s: float) -> bool:
    """Whether the process, a child of nobody in particular, ends in time."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watch], [], [], timeout_s)[0])
    finally:
        os.close(watch)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    config = tiny_config("llama", False, "bfloat16")
    write_model(folder, config, tiny_weights(config, 0))
    return folder


@pytest.fixture(scope="session")
def start(model):
    """Start a server; the caller ends it."""

    def start(*args, log=None, core=SCRIPTED, scale=0.05):
        extra = ["--core", core] if core else []
        return ServerProcess(
            ["--model-path", str(model), "--time-scale", str(scale), "--log-level", "error", *extra, *args],
            log=log,
            env={"PYTHONPATH": str(ROOT)},
        )

    return start
