"""Mutants a second, beside mutmut 3: the same modules of the engine, the same tests, the same number of workers.

`pytest tests/benchmarks/bench_mutate.py -o python_files='bench_*.py' -o python_functions='bench_*'`. mutmut is
not a dependency: `REFITCHECK_MUTMUT=/path/to/mutmut` names one whose environment also has this project's dependencies.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("loop", "cache", "memory")
TESTS = (
    "tests/fakes/engine/control/test_loop.py",
    "tests/fakes/engine/control/test_memory.py",
    "tests/fakes/engine/data/test_cache.py",
)
WORKERS = "2"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy that both tools may work in."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fakes", tmp_path / "fakes", ignore=ignored)
    shutil.copytree(ROOT / "tests" / "fakes" / "engine", tmp_path / "tests" / "fakes" / "engine", ignore=ignored)
    for package in ("tests", "tests/fakes"):
        (tmp_path / package / "__init__.py").touch()
    mutated = [f"fakes/engine/{name}.py" for name in MODULES]
    (tmp_path / "pyproject.toml").write_text(
        "[tool.mutmut]\n"
        f'source_paths = ["fakes"]\nonly_mutate = {mutated}\n'
        f"pytest_add_cli_args_test_selection = {list(TESTS)}\n"
        'pytest_add_cli_args = ["-p", "no:refitcheck", "-p", "no:cacheprovider"]\n'
        'also_copy = ["tests"]\n'
        '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\npythonpath = ["."]\n'
    )
    return tmp_path


@pytest.mark.timeout(0)
@pytest.mark.benchmark(group="mutants")
def bench_refitcheck(benchmark, project):
    targets = [arg for name in MODULES for arg in ("--target", f"fakes.engine.{name}")]
    tests = [arg for name in TESTS for arg in ("--tests", name)]
    command = "import sys; sys.path.insert(0, '.'); from harness.cli import main; main()"
    options = ["-j", WORKERS, "--no-rerun", "--no-cache"]
    said = _timed(benchmark, [sys.executable, "-c", command, "mutate", *targets, *tests, *options], project)
    benchmark.extra_info["per_second"] = re.findall(r"\(([\d.]+)/s", said)[-1]
    benchmark.extra_info["mutants"] = re.findall(r"(\d+) mutants in", said)[-1]


@pytest.mark.timeout(0)
@pytest.mark.benchmark(group="mutants")
@pytest.mark.skipif("REFITCHECK_MUTMUT" not in os.environ, reason="REFITCHECK_MUTMUT names no mutmut 3")
def bench_mutmut(benchmark, project):
    said = _timed(benchmark, [os.environ["REFITCHECK_MUTMUT"], "run", "--max-children", WORKERS], project)
    benchmark.extra_info["per_second"] = re.findall(r"([\d.]+) mutations/second", said)[-1]
    benchmark.extra_info["mutants"] = re.findall(r"(\d+)/\1 ", said)[-1]


def _timed(benchmark, command: list[str], folder: Path) -> str:
    def run() -> str:
        done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
        assert done.returncode in (0, 1), done.stdout[-500:] + done.stderr[-500:]
        return done.stdout

    return str(benchmark.pedantic(run, rounds=1))
