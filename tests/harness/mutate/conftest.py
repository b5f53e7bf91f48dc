from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

BUCKETING = '''
"""Cuts a list into buckets and sends them."""

LIMIT = 2


def buckets(items, size):
    out = []
    for start in range(0, len(items), size):
        out.append(items[start : start + size])
    return out


def send(engine, items):
    if not items:
        raise ValueError("nothing to send")
    engine.append("begin")
    try:
        for bucket in buckets(items, LIMIT):
            engine.append(len(bucket))
    finally:
        engine.append("end")
    return engine


def pairs(n):
    turns = 0
    while n > 0:
        n -= 2
        turns += 1
    return turns


def at_import():
    return {"key": 1}


TABLE = at_import()


def unused():
    return 3
'''

TESTS = """
import pytest
from hypothesis import given, settings, strategies as st

import bucketing


@pytest.mark.rules("NAME-3")
@pytest.mark.parametrize("n", [0, 1, 5])
def test_nothing_is_lost(n):
    assert [x for b in bucketing.buckets(list(range(n)), 2) for x in b] == list(range(n))


@given(st.lists(st.integers(), max_size=6), st.integers(1, 4))
def test_no_bucket_is_too_big(items, size):
    assert all(1 <= len(b) <= size for b in bucketing.buckets(items, size))


class TestSend:
    @pytest.fixture
    def engine(self, tmp_path):
        (tmp_path / "x").write_text("x")
        return []

    def test_brackets(self, engine):
        assert bucketing.send(engine, [1, 2, 3]) == ["begin", 2, 1, "end"]

    def test_empty_is_refused(self, engine):
        with pytest.raises(ValueError):
            bucketing.send(engine, [])
        assert engine == []


def test_pairs():
    assert bucketing.pairs(5) == 3


def test_table():
    assert bucketing.TABLE == {"key": 1}
    bucketing.at_import()


@pytest.mark.skip(reason="never")
def test_skipped():
    assert bucketing.unused() == 4
"""


@dataclass
class Ran:
    code: int
    out: str
    err: str
    folder: Path

    def report(self) -> dict:
        return json.loads((self.folder / "report" / "mutation.json").read_text(encoding="utf-8"))

    def mutants(self) -> dict[str, dict]:
        return {m["id"]: m for f in self.report()["files"].values() for m in f["mutants"]}


def mutate(folder: Path, *args: str) -> Ran:
    """The command in a process of its own, in `folder`, with a cache of its own."""
    environment = {**os.environ, "REFITCHECK_CACHE": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", "mutate", *args],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
        timeout=500,
    )
    return Ran(done.returncode, done.stdout, done.stderr, folder)


def write_project(folder: Path) -> Path:
    (folder / "bucketing.py").write_text(BUCKETING, encoding="utf-8")
    (folder / "test_bucketing.py").write_text(TESTS, encoding="utf-8")
    return folder


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path)


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory):
    """One whole session over the sample project, with its reports."""
    folder = write_project(tmp_path_factory.mktemp("bucketing"))
    return mutate(folder, "--target", "bucketing", "--tests", "test_bucketing.py", "-j", "2", "--report", "report")
