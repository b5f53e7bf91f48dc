import json
import os

import pytest
from typer.testing import CliRunner

from real_runs.evidence.files import BadBundle
from real_runs.evidence.training import run as module
from real_runs.evidence.training.cli import app
from real_runs.evidence.training.run import read_run


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "run"
    assert call("example", made).exit_code == 0
    return made


def test_a_good_run_passes_and_says_what_it_measured(folder, tmp_path):
    found = call("validate", folder, "--output", tmp_path / "verdict.json")

    assert found.exit_code == 0, found.output
    assert "5 refits in 4 steps: first 9.500 s, steady 1.350 s" in found.output
    assert "train/reward                 0.15  0.225" in found.output
    assert found.output.endswith("verdict passed   exit of the process 0\n")
    told = json.loads((tmp_path / "verdict.json").read_text())
    assert (told["verdict"], told["process_exit"], told["refusals"]) == ("passed", 0, [])
    assert told["measured"]["steady_s"] == 1.35


def edit(folder, change):
    path = folder / "run.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_an_exit_of_the_process_is_told_beside_the_verdict_and_is_no_part_of_it(folder):
    edit(folder, lambda data: data.update(exit_code=139))
    found = call("validate", folder)

    assert found.exit_code == 0
    assert "verdict passed   exit of the process 139" in found.output


def test_a_bad_run_has_a_line_for_each_reason(folder, tmp_path):
    edit(folder, lambda data: data["expected"].update(world_size=9))
    with (folder / "run.log").open("a") as log:
        log.write("Traceback (most recent call last):\n")
    found = call("validate", folder, "-o", tmp_path / "verdict.json")

    assert found.exit_code == 1
    lines = found.output.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("✗")] == ["EVID-3", "EVID-4", "EVID-19"]
    assert lines[-1] == "verdict refused, 3 reasons   exit of the process 0"
    told = json.loads((tmp_path / "verdict.json").read_text())
    assert (told["verdict"], len(told["refusals"]), told["measured"]) == ("refused", 3, None)


def test_what_is_no_run_is_one_line(tmp_path, folder):
    assert call("validate", tmp_path / "none").exit_code == 4
    assert call("example", folder).exit_code == 4
    (folder / "run.json").write_text("{")
    found = call("validate", folder)
    assert found.exit_code == 1
    assert "exit of the process not recorded" in found.output


@pytest.mark.parametrize("name", ["run.log", "train_data_step2.jsonl", "logs/../run.json"])
def test_a_verdict_is_written_over_no_evidence(folder, tmp_path, name):
    before = (folder / name).read_bytes()
    (tmp_path / "link").symlink_to(folder / name)
    (tmp_path / "same").hardlink_to((folder / name).resolve())
    for output in (folder / name, tmp_path / "link", tmp_path / "same"):
        found = call("validate", folder, "-o", output)

        assert (found.exit_code, "is part of the evidence" in found.output) == (4, True)
        assert len(found.output.splitlines()) == 1
    assert (folder / name).read_bytes() == before
    assert call("validate", folder, "-o", folder / "verdict.json").exit_code == 0


def test_times_are_those_of_the_files(folder):
    os.utime(folder / "train_data_step2.jsonl", (1, 1))

    assert "✗ EVID-9 train_data_step2.jsonl was written before the run started" in call("validate", folder).output


def test_only_what_is_judged_is_read_whole(folder):
    (folder / "train_data_step2.jsonl").write_text("many lines")
    found = read_run(folder)

    assert (found.files["train_data_step2.jsonl"].data, found.files["train_data_step2.jsonl"].size) == (b"m", 10)
    assert len(found.files["run.log"].data) == found.files["run.log"].size


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILE", 99), ("MAX_TOTAL", 999), ("MAX_FILES", 2)])
def test_sizes_are_bounded(folder, monkeypatch, limit, value):
    monkeypatch.setattr(module, limit, value)
    with pytest.raises(BadBundle, match="more than"):
        read_run(folder)


def test_links_are_refused(folder):
    (folder / "logs" / "x.log").symlink_to("/etc/hostname")
    with pytest.raises(BadBundle, match="no plain file"):
        read_run(folder)
