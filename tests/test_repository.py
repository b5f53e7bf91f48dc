"""The repository keeps its promises: every test file is collected, every package type-checked, no machine is named."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.readme_commands import commands

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def tracked() -> list[str]:
    return subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True, check=True).stdout.split("\n")


def test_the_readme_has_the_commands_that_ci_runs():
    wanted = set(re.findall(r"readme_commands\.py ([\w-]+)", (ROOT / ".ci/run").read_text(encoding="utf-8")))
    assert wanted
    assert wanted <= set(commands(README))


@pytest.mark.timeout(600)  # it collects every test of the project
def test_every_test_file_is_collected_by_the_readme_command():
    assert re.search(r"&& pytest\b(?! [^-])", commands(README)["tests"]), "the README's command must not name a folder"
    out = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert out.returncode == 0, out.stdout[-2000:] + out.stderr[-2000:]
    files = {p for p in tracked() if re.fullmatch(r"tests/(.*/)?test_\w+\.py", p)}
    assert files
    assert not {f for f in files if f not in out.stdout}


def test_every_package_is_type_checked_and_shipped():
    packages = {p.split("/")[0] for p in tracked() if p.endswith("/__init__.py")} - {"tests"}
    assert set(PROJECT["tool"]["mypy"]["packages"]) == packages
    shipped = {p.rstrip("*") for p in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert shipped == packages | {"refitcheck_plugin"}  # its own name at the top, its source in harness/pytest_entry


def test_the_top_level_is_what_was_agreed():
    allowed = {"fakes", "harness", "conformance", "real_runs", "tests", "pyproject.toml", "conftest.py", "README.md"}
    tools = {".ci", ".github", ".gitignore", "LICENSE", "constraints.txt"}
    assert {p.split("/")[0] for p in tracked() if p} <= allowed | tools


def test_no_file_names_a_machine_or_a_registry():
    forbidden = re.compile(r"/work/|/farm/|/root/|/tmp/\w|files\.pythonhosted|pypi\.org/simple|download\.pytorch\.org")
    wrong = []
    for name in tracked():
        if name and name != "tests/test_repository.py" and not name.endswith((".xz", ".safetensors", ".npz")):
            text = (ROOT / name).read_text(encoding="utf-8", errors="replace") if (ROOT / name).is_file() else ""
            wrong += [f"{name}: {m.group()}" for m in forbidden.finditer(text)]
    assert not wrong


def test_no_source_file_outgrows_one_idea():
    big = {
        p: n
        for p in tracked()
        if p.endswith(".py")
        and (ROOT / p).exists()
        and (n := len((ROOT / p).read_text(encoding="utf-8").split("\n"))) > 450
    }
    assert not big


def test_the_readme_is_finished_and_names_only_options_that_exist():
    assert "@@" not in README
    for command in re.findall(r"^(?:\$ )?refitcheck (run|serve|model|mutate) ?(.*)$", README, re.M):
        options = set(re.findall(r"--[a-z-]+", command[1]))
        if command[0] in ("run", "mutate", "model"):
            done = [sys.executable, "-m", "harness.cli", command[0], "--help"]
            shown = subprocess.run(done, cwd=ROOT, text=True, capture_output=True, check=True).stdout
            assert options <= set(re.findall(r"--[a-z-]+", shown)), command
