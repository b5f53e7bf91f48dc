import json
from pathlib import Path

import pytest

import real_runs
from real_runs.evidence.files import SUMS, read_files, sums_of

SMALL = Path(real_runs.__file__).parent / "bundles" / "sglang-gpu-0.5.23-tp1-refit.tar.xz"


@pytest.fixture(scope="session")
def _good():
    return read_files(SMALL)


@pytest.fixture
def good(_good):
    """The files of a good bundle, the caller's own."""
    return dict(_good)


def summed(files):
    """With sums that fit: what somebody would do who edits a bundle on purpose."""
    return {**files, SUMS: sums_of(files)}


def edited(files, name, change):
    """One JSON file, changed in place by `change(data)`."""
    data = json.loads(files[name])
    change(data)
    return {**files, name: json.dumps(data).encode()}
