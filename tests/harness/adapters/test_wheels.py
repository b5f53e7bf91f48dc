"""Frameworks of PyPI, where they are installed (CI has a lane for it): their own code, and what becomes of it."""

import importlib.util
import os

import pytest

from harness.frameworks import running
from harness.settings import Settings
from harness.sut.adapters.table import FRAMEWORKS

CHECKOUTS = "REFITCHECK_CHECKOUT_{}"
SETTINGS = Settings(
    lane="http", tp=2, side="refit", scenarios=(running.SCENARIO,), exploration="off", hang_timeout=60.0
)
SEEN = {  # framework, version -> outcome, whether the engine is left paused, a part of what it says
    ("verl", "0.5.20"): ("works", False, ""),
    ("verl", "0.5.23"): ("refused", False, "abstract methods begin_weight_update, end_weight_update"),
    ("areal", "0.5.20"): ("works", False, ""),
    ("areal", "0.5.23"): ("works", False, ""),
    ("miles", "0.5.23"): ("refused", True, "must run between begin_weight_update() and end_weight_update()"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "version"), list(SEEN))
def test_a_wheel_does_what_it_did(name, version):
    framework = FRAMEWORKS[name]
    checkout = os.environ.get(CHECKOUTS.format(name.upper()), "")
    if not checkout and (framework.alone or importlib.util.find_spec(framework.package) is None):
        pytest.skip(f"{name} is not installed: {framework.install}")
    outcome, paused, told = SEEN[name, version]
    options = {"checkout": checkout} if checkout else {}
    (cell,) = running.cells(SETTINGS, (name,), (version,), options_of=lambda sut: options)
    assert (cell.outcome, bool(cell.paused)) == (outcome, paused), cell.why
    assert told in cell.why
