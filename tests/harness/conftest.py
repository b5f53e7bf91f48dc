from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints

import pytest

import harness.pool
import harness.suites

TOYS = (
    EntryPoint("toy", "tests.harness.toys:toy_suite", "refitcheck.suites"),
    EntryPoint("toy", "tests.harness.toys:ToyLane", "refitcheck.lanes"),
    EntryPoint("toy", "tests.harness.toys:ToySut", "refitcheck.suts"),
    EntryPoint("toy", "tests.harness.toys:toy_plants", "refitcheck.catalogues"),
    EntryPoint("toy", "tests.harness.toys:toy_command", "refitcheck.commands"),
)


@pytest.fixture
def toys_installed(monkeypatch):
    """Only the toys are installed. Returns a function that installs something more."""
    points = list(TOYS)

    def entry_points(**select):
        return EntryPoints(points).select(**select)

    monkeypatch.setattr(harness.suites, "entry_points", entry_points)
    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr(harness.pool, "APART", False)  # another process would find other entry points

    def install(name: str, value: str, group: str) -> None:
        points.append(EntryPoint(name, value, group))

    return install
