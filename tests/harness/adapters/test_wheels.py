"""Frameworks of PyPI, where they are installed (CI has a lane for it): their own code, and what becomes of it."""

import dataclasses
import importlib.util
import os

import pytest

from harness.frameworks import expected, running
from harness.settings import Settings
from harness.sut.adapters.table import FRAMEWORKS

CHECKOUTS = "REFITCHECK_CHECKOUT_{}"
SETTINGS = Settings(
    lane="http", tp=2, side="refit", scenarios=(running.SCENARIO,), exploration="off", hang_timeout=60.0
)
ROWS = (
    ("verl", "0.5.20"),
    ("verl", "0.5.23"),
    ("areal", "0.5.20"),
    ("areal", "0.5.23"),
    ("miles", "0.5.23"),
    ("checkpoint-engine", "0.5.23"),
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "version"), ROWS)
def test_a_wheel_does_what_it_did(name, version):
    framework = FRAMEWORKS[name]
    checkout = os.environ.get(CHECKOUTS.format(name.upper()), "")
    if not checkout and (framework.alone or importlib.util.find_spec(framework.package) is None):
        pytest.skip(f"{name} is not installed: {framework.install}")
    options = {"checkout": checkout} if checkout else {}
    # At tp 2 AReaL removes the folder at rank 0's answer: what becomes of that depends on when the others read.
    settings = dataclasses.replace(SETTINGS, tp=1) if name == "areal" else SETTINGS
    (cell,) = running.cells(settings, (name,), (version,), options_of=lambda sut: options)
    compared = expected.compared(cell)
    assert compared.row is not None
    assert compared.differs == "", cell.why
