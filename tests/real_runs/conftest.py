import sys
from pathlib import Path

import pytest

from real_runs.env import SglangEnv
from real_runs.server import Server, ServerSpec

STUB = Path(__file__).with_name("stub_server.py")


@pytest.fixture
def stub_env(tmp_path):
    """An environment whose python runs the stub instead of SGLang."""
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STUB}" "$@"\n')
    python.chmod(0o755)
    return SglangEnv("0.5.23", python, tmp_path / "env")


@pytest.fixture
def server(stub_env, tmp_path):
    """A supervised stub, not started yet."""
    supervised = Server(stub_env, ServerSpec("0.5.23", tmp_path / "model"), tmp_path / "run")
    yield supervised
    supervised.stop()
