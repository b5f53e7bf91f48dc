"""Other projects have folders called harness or fakes too: theirs stay theirs, and ours says what is in the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    for name in ("harness", "fakes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "test_mine.py").write_text(
        "import fakes, harness\n\ndef test_mine():\n    assert harness.MINE and fakes.MINE\n"
    )
    return tmp_path


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)


def test_a_project_with_folders_of_the_same_names_keeps_them(foreign):
    done = pytest_in(foreign, "test_mine.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_shadowed_package_is_refused_in_one_line_that_says_by_what(foreign):
    done = pytest_in(foreign, "--pyargs", "conformance", "--rule", "SESS-58")
    said = (done.stdout + done.stderr).strip()
    assert done.returncode == 4, said
    assert "Traceback" not in said
    errors = [line for line in said.splitlines() if line.startswith("ERROR")]
    assert len(errors) == 1
    assert f"shadowed: Python finds {(foreign / 'fakes').resolve()}" in errors[0]
