"""Arrows point one way: fakes <- harness <- conformance, harness <- real_runs; heavy packages stay where needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "fakes": {"fakes"},
    "harness": {"fakes", "harness"},
    "conformance": {"fakes", "harness", "conformance"},
    "real_runs": {"fakes", "harness", "real_runs"},
}
TRAINERS = ROOT / "harness/sut/adapters/drivers"  # code of trainer processes, in an environment of a framework's
HEAVY = {"torch", "fastapi", "uvicorn", "ray", "sglang", "transformers", "httpx"}
NO_IO_IN_THE_CORE = {
    "socket",
    "threading",
    "asyncio",
    "time",
    "subprocess",
    "multiprocessing",
    "torch",
    "os",
    "pathlib",
}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(tree: ast.AST, *, top_level: bool = False) -> set[str]:
    """First components of everything a module imports; with top_level, only what runs at import time."""
    found: set[str] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
        for child in ast.iter_child_nodes(node):
            in_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guarded = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            if not (top_level and (in_function or guarded)):
                stack.append(child)
    return found


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def test_there_is_something_to_check():
    assert all(len(modules(package)) > 3 for package in ALLOWED)


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_layer_imports_only_the_layers_below_it(package):
    ours = set(ALLOWED) | {"tests"}
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(package)
        for name in imported(parse(path)) & ours - ALLOWED[package]
    }
    assert not wrong


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_heavy_packages_are_imported_inside_functions(package):
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(package)
        for name in imported(parse(path), top_level=True) & HEAVY
        if TRAINERS not in path.parents
    }
    assert not wrong


def test_what_runs_in_trainer_processes_is_imported_nowhere_else():
    wrong = {
        str(path.relative_to(ROOT))
        for path in modules("harness")
        if TRAINERS not in path.parents and "adapters.drivers" in ast.dump(parse(path))
    }
    assert wrong <= {"harness/sut/adapters/zygote.py"}


def test_the_engine_core_is_sans_io():
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("fakes/engine")
        for name in imported(parse(path), top_level=True) & NO_IO_IN_THE_CORE
    }
    assert not wrong


@pytest.mark.parametrize("module", ["fakes", "fakes.engine.core", "fakes.world", "refitcheck_plugin"])
def test_importing_does_not_import_torch(module):
    code = f"import sys, {module}; sys.exit(int('torch' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_file_is_called_like_a_package_of_the_engine():
    assert not [p for p in (ROOT / "tests").rglob("*") if p.is_dir() and p.name in {"sglang", "torch", "ray", "nixl"}]
