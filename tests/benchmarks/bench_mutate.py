"""Mutants a second beside mutmut 3 and cosmic-ray: the same modules of the engine, the same tests, in one run.

`pytest tests/benchmarks/bench_mutate.py -o python_files='bench_*.py' -o python_functions='bench_*' -s`. The other two
are no dependencies: they are installed into an environment of their own below `$REFITCHECK_CACHE`, once. cosmic-ray,
which starts a process per mutant, runs a sample.
"""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.mutate.cache import folder as cache_folder

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("cache", "memory", "generate_batch")
TESTS = (
    "tests/fakes/engine/data/test_cache.py",
    "tests/fakes/engine/data/test_cache_model.py",
    "tests/fakes/engine/control/test_memory.py",
    "tests/fakes/engine/control/test_memory_edges.py",
    "tests/fakes/engine/control/test_generate_batch.py",
)
WORKERS = 2
SAMPLE = 20
OTHERS = ("mutmut==3.8.1", "cosmic-ray==8.7.0")


@dataclass
class Row:
    """What one tool did. `seconds` is wall time and `cpu` the CPU time of the whole command, its children included."""

    tool: str
    workers: int
    mutants: int
    seconds: float
    cpu: float
    survived: int

    @property
    def rate(self) -> float:
        """Mutants a second of wall time, for each worker."""
        return self.mutants / self.seconds / self.workers


@pytest.fixture(scope="module")
def others() -> Path:
    """The `bin` of an environment with the other tools and, by a path file, everything that this one has."""
    where = cache_folder().parent / "bench" / f"py{sys.version_info.major}{sys.version_info.minor}"
    if not (where / "done").exists():
        shutil.rmtree(where, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(where)], check=True)
        subprocess.run([str(where / "bin" / "pip"), "install", "-q", "pytest", *OTHERS], check=True)
        libraries = where / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (libraries / "zz_shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (where / "done").touch()
    return where / "bin"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy that all tools may work in."""
    ignored = shutil.ignore_patterns("__pycache__")
    for part in ("fakes", "tests/fakes/engine", "tests/recorded"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=ignored)
    for package in ("tests", "tests/fakes"):
        (tmp_path / package / "__init__.py").touch()
    shutil.copy(ROOT / "conftest.py", tmp_path)
    mutated = [f"fakes/engine/{name}.py" for name in MODULES]
    (tmp_path / "pyproject.toml").write_text(
        "[tool.mutmut]\n"
        f'source_paths = ["fakes"]\nonly_mutate = {mutated}\n'
        f"pytest_add_cli_args_test_selection = {list(TESTS)}\n"
        'pytest_add_cli_args = ["-p", "no:refitcheck", "-p", "no:cacheprovider"]\n'
        'also_copy = ["tests", "conftest.py"]\n'
        '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\npythonpath = ["."]\n'
    )
    (tmp_path / "cosmic.toml").write_text(
        "[cosmic-ray]\n"
        f"module-path = {mutated}\ntimeout = 60.0\n"
        f'test-command = "python -m pytest -x -q -p no:refitcheck -p no:cacheprovider {" ".join(TESTS)}"\n'
        '[cosmic-ray.distributor]\nname = "local"\n'
    )
    return tmp_path


def _timed(tool: str, workers: int, command: list[str], folder: Path, **environment: str) -> tuple[Row, str]:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, text=True, capture_output=True, check=False, env={**os.environ, **environment}
    )
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1), done.stdout[-500:] + done.stderr[-500:]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Row(tool, workers, 0, seconds, cpu, 0), done.stdout


def ours(project: Path, *more: str) -> Row:
    """`refitcheck mutate`, its baseline and its controls included, without the second run of survivors."""
    targets = [arg for name in MODULES for arg in ("--target", f"fakes.engine.{name}")]
    tests = [arg for name in TESTS for arg in ("--tests", name)]
    command = "import sys; sys.path.insert(0, '.'); from harness.cli import main; main()"
    options = ["-j", str(WORKERS), "--no-rerun", "--no-cache", *more]
    row, said = _timed(
        "refitcheck" + ("*" if more else ""),
        WORKERS,
        [sys.executable, "-c", command, "mutate", *targets, *tests, *options],
        project,
    )
    row.mutants = int(re.findall(r"(\d+) mutants in", said)[-1])
    row.survived = int((re.findall(r"survived (\d+)", said) or ["0"])[-1])
    return row


def mutmut(project: Path, others: Path) -> Row:
    """`mutmut run`, its statistics and its forced failure included."""
    row, said = _timed("mutmut 3", WORKERS, [str(others / "mutmut"), "run", "--max-children", str(WORKERS)], project)
    counted = re.findall(r"(\d+)/\1 .*🙁 (\d+)", said)
    assert counted, said[-1000:]
    row.mutants, row.survived = int(counted[-1][0]), int(counted[-1][1])
    return row


def cosmic_ray(project: Path, others: Path) -> Row:
    """`cosmic-ray exec` of a sample: one worker, which is all that it has without servers."""
    path = f"{others}{os.pathsep}{os.environ['PATH']}"
    tool = [str(others / "cosmic-ray")]
    _timed("", 1, [*tool, "init", "cosmic.toml", "work.sqlite"], project, PATH=path)
    with sqlite3.connect(project / "work.sqlite") as database:
        jobs = sorted(job for (job,) in database.execute("select job_id from work_items"))
        for job in set(jobs) - set(random.Random(20261130).sample(jobs, SAMPLE)):
            database.execute("delete from mutation_specs where job_id = ?", (job,))
            database.execute("delete from work_items where job_id = ?", (job,))
    row, _ = _timed("cosmic-ray", 1, [*tool, "exec", "cosmic.toml", "work.sqlite"], project, PATH=path)
    with sqlite3.connect(project / "work.sqlite") as database:
        found = [outcome for (outcome,) in database.execute("select test_outcome from work_results")]
    row.mutants = len(found)
    row.survived = sum("SURVIVED" in str(outcome).upper() for outcome in found)
    return row


@pytest.mark.timeout(0)
@pytest.mark.benchmark(group="mutants")
def bench_mutants_a_second(benchmark, project, others):
    rows: list[Row] = []

    def take(row: Row) -> None:
        rows.append(row)
        print(f"\n{row}", flush=True)  # a loaded machine takes long

    def run() -> None:
        take(ours(project))
        take(ours(project, "--equivalents", str(ROOT / "conformance" / "catalogue" / "equivalent.toml")))
        take(mutmut(project, others))
        take(cosmic_ray(project, others))

    benchmark.pedantic(run, rounds=1)
    print(f"\n{', '.join(MODULES)} of fakes.engine; {len(TESTS)} test files; Python {sys.version.split()[0]}")
    print("| tool | workers | mutants | survived | wall s | CPU ms a mutant | mutants/s a worker | slower by |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.tool} | {row.workers} | {row.mutants} | {row.survived} | {row.seconds:.1f} | "
            f"{row.cpu / row.mutants * 1000:.0f} | {row.rate:.2f} | {rows[0].rate / row.rate:.1f} |"
        )
        benchmark.extra_info[row.tool] = round(row.rate, 3)
    print("\\* without the mutants that are listed as equivalent")
    print(f"a thousand mutants of the first row: {1000 / rows[0].rate / rows[0].workers:.0f} s")
