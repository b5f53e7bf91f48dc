"""Small modules to mutate, written where a test wants them."""

from __future__ import annotations

import importlib
import itertools
import sys
import textwrap
from pathlib import Path
from typing import Any

from harness.mutate import operators
from harness.mutate.checks import Finding
from harness.mutate.program import Program
from harness.mutate.sites import Site
from harness.mutate.source import Source, parse

_numbers = itertools.count()


def source_of(folder: Path, text: str, name: str = "sample") -> Source:
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return parse(name, path)


def sites_of(folder: Path, text: str, op: str = "") -> list[Site]:
    return [s for s in operators.sites(source_of(folder, text)) if not op or s.op == op]


def live(folder: Path, text: str, monkeypatch: Any) -> tuple[Any, Program]:
    """A fresh importable module of its own name, and a program that has it as its target."""
    name = f"mutate_sample_{next(_numbers)}"
    (folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    importlib.import_module(name)
    program = Program([name])
    program.prepare()
    return sys.modules[name], program


class Says:
    """A check made of a function: what it returns or raises is what was noticed."""

    def __init__(self, name: str, function: Any, *rules: str, path: str = "") -> None:
        self.id, self._function, self.rules, self.path = name, function, frozenset(rules), path

    def run(self) -> list[Finding]:
        return [Finding(rule, text) for rule, text in self._function() or ()]


class Host:
    def __init__(self, *checks: Says) -> None:
        self.checks: list[Any] = list(checks)

    def enter(self) -> None:
        pass

    def close(self) -> None:
        pass
