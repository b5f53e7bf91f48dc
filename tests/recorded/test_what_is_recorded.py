"""What is recorded of which server, and what is not, with the reason: `recorded.toml`, and it must be so."""

import tomllib
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest

from harness.history_files import read_records
from real_runs.comparing import by_sequence
from real_runs.env import SUPPORTED
from real_runs.models import TinyModel
from real_runs.recorder import as_recorded, recorded
from real_runs.sequences import select

FOLDER = Path(__file__).parent / "histories"
SAID = tomllib.loads(FOLDER.with_name("recorded.toml").read_text())
ENGINES = [(version, tp) for version in SUPPORTED for tp in (1, 2)]


def found(version, tp):
    """The sequences of the plain server's two files, by name."""
    model = TinyModel("llama", False, "float32", tp)
    name = f"{version}-tp{tp}-llama-float32-plain"
    return recorded(FOLDER / f"{name}.jsonl.xz", model) | recorded(FOLDER / f"{name}-fatal.jsonl.xz", model)


def covers(entry, version, tp, name):
    where = entry["tp"] == tp and version in entry["versions"]
    return where and any(fnmatch(name, pattern) for pattern in entry["sequences"])


def test_every_file_is_listed_with_the_number_of_its_sequences():
    files = {path.name.removesuffix(".jsonl.xz"): path for path in FOLDER.iterdir()}

    assert {name: len(by_sequence(read_records(path))) for name, path in files.items()} == SAID["sequences"]


@pytest.mark.parametrize(("version", "tp"), ENGINES)
def test_a_sequence_is_recorded_or_stands_once_among_those_that_are_not(version, tp):
    known = found(version, tp)
    wanted = {entry.name: as_recorded(entry) for entry in select(version, tp)}
    missing = {name for name in wanted if known.get(name) != wanted[name]}
    listed = Counter(name for entry in SAID["not_recorded"] for name in wanted if covers(entry, version, tp, name))

    assert sorted(missing - set(listed)) == [], "neither recorded nor in recorded.toml"
    assert sorted(set(listed) - missing) == [], "recorded, and in recorded.toml among those that are not"
    assert max(listed.values(), default=1) == 1


def test_every_reason_is_told_and_every_pattern_meets_a_sequence():
    for entry in SAID["not_recorded"]:
        assert len(entry["why"]) > 20
        for version in entry["versions"]:
            names = [sequence.name for sequence in select(version, entry["tp"])]
            idle = [p for p in entry["sequences"] if not any(fnmatch(name, p) for name in names)]
            assert idle == [], (version, entry["tp"])
