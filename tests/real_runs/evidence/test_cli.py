"""From a run's folder to a bundle that is verified, shown, judged again and held beside the fake."""

import json
import lzma

import pytest
from typer.testing import CliRunner

from real_runs.evidence import manifest as manifest_module
from real_runs.evidence.cli import app
from real_runs.evidence.environment import NAME as ENVIRONMENT
from real_runs.evidence.environment import git_state
from real_runs.evidence.files import SUMS, read_files
from real_runs.evidence.manifest import MANIFEST, RESULTS, make_bundle, read_manifest
from tests.real_runs.evidence.conftest import SMALL, edited, summed


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def run(good, tmp_path):
    """The folder that a run leaves: histories and logs packed."""
    folder = tmp_path / "run"
    for name, data in good.items():
        if name in (MANIFEST, SUMS):
            continue
        packed = name.startswith(("histories/", "logs/"))
        path = folder / (f"{name}.xz" if packed else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(data) if packed else data)
    return folder


def test_a_run_becomes_a_bundle_that_stands_every_check(run, tmp_path, good):
    out = tmp_path / "b.tar.xz"
    made = call("make", run, "-o", out)
    assert made.exit_code == 0, made.output
    known = made.output.split()[0]

    assert call("verify", out, "--id", known).exit_code == 0
    assert set(read_files(out)) == set(good)
    assert call("rejudge", out).output.startswith("56 verdicts are as they were")
    shown = call("show", out).output
    for said in ("sglang:0.5.23", "NVIDIA H200 (driver 580", "NCCL 2.28.9", "held 35", "inconclusive RANK-4: needs tp"):
        assert said in shown


def test_the_id_tells_a_bundle_from_another(run, tmp_path):
    assert call("verify", SMALL, "--id", "0" * 64).exit_code == 1


def test_several_are_all_looked_at_and_the_worst_counts(tmp_path):
    (tmp_path / "no.tar.xz").write_bytes(b"nothing")
    (tmp_path / "empty").mkdir()
    two = call("verify", SMALL, SMALL)
    assert two.exit_code == 0
    assert [line.partition(": ")[0] for line in two.output.splitlines()] == [str(SMALL)] * 2
    worst = call("verify", tmp_path / "no.tar.xz", SMALL)
    assert (worst.exit_code, len(worst.output.splitlines())) == (4, 2)
    assert worst.output.count("files, whole") == 1
    assert call("verify", SMALL, SMALL, "--id", "0" * 64).exit_code == 4


def test_what_is_wrong_ends_with_1_and_a_line_each(good, tmp_path):
    for name, data in {**good, RESULTS: b"{}", "x.txt": b""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = call("verify", tmp_path)

    assert found.exit_code == 1
    assert found.output.splitlines() == [f"✗ {RESULTS} is not what {SUMS} says", f"✗ x.txt is not listed in {SUMS}"]
    assert call("rejudge", tmp_path).exit_code == 4


@pytest.mark.parametrize("command", ["verify", "show", "rejudge", "compare", "make"])
def test_what_is_no_bundle_is_one_line(tmp_path, command):
    path = tmp_path / "x.tar.xz"
    path.write_bytes(b"nothing")
    found = call(command, path)

    assert found.exit_code == 4
    assert len(found.output.splitlines()) == 1
    assert found.output.startswith("refitcheck: ")


@pytest.mark.parametrize("name", [RESULTS, ENVIRONMENT])
def test_a_run_without_its_files_says_how_they_are_written(run, name):
    (run / name).unlink()

    assert f"{name} is missing; a run writes it with --report" in call("make", run).output


def test_a_file_that_does_not_belong_to_a_run_is_not_taken_along(run):
    (run / "secrets.txt").write_text("x")

    assert "secrets.txt is no file of a run" in call("make", run).output


def test_a_history_that_is_cut_off_makes_no_bundle(run):
    path = next((run / "histories").iterdir())
    path.write_bytes(path.read_bytes()[:-9])

    assert "is not a whole .xz file" in call("make", run).output


def test_a_log_that_is_missing_makes_no_bundle(run):
    next((run / "logs").iterdir()).unlink()

    assert "a server's log" in call("make", run).output


def test_the_revision_is_that_of_the_run(run):
    (run / ENVIRONMENT).write_bytes(
        edited(
            {ENVIRONMENT: (run / ENVIRONMENT).read_bytes()},
            ENVIRONMENT,
            lambda data: data["refitcheck"].update(revision="a" * 40, dirty=True),
        )[ENVIRONMENT]
    )
    head = read_manifest(make_bundle(run))

    assert (head.revision, head.dirty, head.revision_of) == ("a" * 40, True, "run")


def test_a_checkout_with_the_same_sources_may_say_the_revision_and_no_other(run, monkeypatch):
    sources = json.loads((run / ENVIRONMENT).read_text())["refitcheck"]["sources"]
    monkeypatch.setattr(manifest_module, "git_state", lambda folder: {"revision": "b" * 40, "dirty": False})
    monkeypatch.setattr(manifest_module, "sources_hash", lambda: sources)
    known = read_manifest(make_bundle(run))
    monkeypatch.setattr(manifest_module, "sources_hash", lambda: "others")
    unknown = read_manifest(make_bundle(run))

    assert (known.revision, known.revision_of) == ("b" * 40, "sources")
    assert (unknown.revision, unknown.dirty, unknown.revision_of) == (None, None, "")


def test_a_folder_outside_a_checkout_has_no_revision(tmp_path):
    assert git_state(tmp_path) == {"revision": None, "dirty": None}


def test_a_verdict_that_is_another_today_ends_with_1(good, tmp_path):
    def change(data):
        entry = next(entry for entry in data["results"] if entry["status"] == "held")
        entry.update(status="unsupported", missing="x")
        data["counts"].update(held=34, unsupported=19)

    files = edited(good, RESULTS, change)
    files = summed(edited(files, MANIFEST, lambda data: data["counts"].update(held=34, unsupported=19)))
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = call("rejudge", tmp_path)

    assert found.exit_code == 1, found.output
    assert "was unsupported, is held" in found.output
