"""Every committed bundle is the one that was made, and today's rules and today's fake say of it what was said then."""

from pathlib import Path

import pytest

import real_runs
from harness.suites import load_book
from real_runs.evidence.checking import problems
from real_runs.evidence.comparing import compare
from real_runs.evidence.files import bundle_id, read_files
from real_runs.evidence.manifest import read_manifest
from real_runs.evidence.rejudging import rejudge

FOLDER = Path(real_runs.__file__).parent / "bundles"
IDS = dict(reversed(line.split()) for line in (FOLDER / "IDS").read_text().splitlines())


def test_every_bundle_has_its_id():
    assert {path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz")} == set(IDS)


JUDGED_OTHERWISE = {"planted-one-norm-left-out": {"RANK-1"}}
"""Wrong content was taken for a wrong rank, though the exports said that every rank's were its own: no more."""


@pytest.mark.parametrize("name", sorted(IDS))
def test_it_is_whole_and_judged_again_as_it_was(name):
    files = read_files(FOLDER / f"{name}.tar.xz")

    assert bundle_id(files) == IDS[name]
    assert problems(files) == []
    assert read_manifest(files).revision
    assert set(rejudge(files).different) == JUDGED_OTHERWISE.get(name, set())


PLANTED = {
    "no-session": {"SESS-1", "SESS-3"},
    "payloads-reversed": {"RANK-1"},
    "one-payload-for-all": {"RANK-1", "RANK-2"},
    "no-flush": {"CACHE-4"},
    "released-at-once": {"IPC-2"},
    "one-norm-left-out": {"NAME-71", "VER-4", "VERIF-1"},
}


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_defect_was_seen_on_the_gpu(plant):
    found = rejudge(read_files(FOLDER / f"planted-{plant}.tar.xz"))

    assert {result.rule.id for result in found.results if result.status == "violated"} == PLANTED[plant]


@pytest.mark.parametrize("name", sorted(name for name in IDS if not name.startswith("planted-")))
def test_the_fake_has_its_verdicts(name):
    found = compare(read_files(FOLDER / f"{name}.tar.xz"), load_book())

    assert found.different == {}
    assert len(found.same) > 30
