"""The lane over HTTP without room: the cause is told, as a harness error, and nothing hangs or is judged instead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import psutil
import pytest

from fakes.fronts.launch_server import TRACE_LOST
from fakes.trace import Header, TraceWriter
from fakes.trainer import shm
from harness.bench import Bench
from harness.errors import HarnessError
from harness.gate import FaultGate
from harness.lanes.base import EngineSpec
from harness.lanes.http import PREFIX, HttpLane


@pytest.fixture
def lane():
    lane = HttpLane({"time_scale": "0.1"})
    yield lane
    lane.close()


@pytest.fixture
def bench(lane):
    trace = TraceWriter()
    trace.write(Header())
    gate = FaultGate(trace, lane.now)
    lane.begin(gate, 0)
    return Bench(lane, gate, EngineSpec("0.5.23"))


def test_a_server_that_cannot_write_its_trace_ends_at_once_and_is_no_answer(bench, lane):
    """A file that may not grow stands for a full disk."""
    engine = bench.e0
    psutil.Process(engine._process.pid).rlimit(psutil.RLIMIT_FSIZE, (1, 1))
    outcome = engine.call("pause_generation", {"mode": "retract"}, timeout_s=600)
    assert outcome.ending == "dropped"
    assert engine._process.process.wait(100) == TRACE_LOST
    with pytest.raises(
        HarnessError, match="the fake broke: it could not write its trace; see whether there is room in"
    ):
        lane.finish()


def test_a_trace_that_was_lost_before_a_restart_is_told_as_well(bench, lane):
    engine = bench.e0
    psutil.Process(engine._process.pid).rlimit(psutil.RLIMIT_FSIZE, (1, 1))
    assert engine.call("pause_generation", {"mode": "retract"}).ending == "dropped"
    engine.restart()
    assert engine.call("pause_generation", {"mode": "retract"}).ok
    with pytest.raises(HarnessError, match="could not write its trace"):
        lane.finish()


def test_a_server_that_somebody_else_killed_is_no_death_of_an_engine(bench, lane):
    """The kernel's OOM killer, above all: what its client did about it is nobody's verdict."""
    engine = bench.e0
    os.kill(engine._process.pid, signal.SIGKILL)
    assert engine._process.process.wait(100) == -signal.SIGKILL
    assert engine.call("pause_generation", {"mode": "retract"}).ending == "refused"
    with pytest.raises(
        HarnessError, match="the fake broke: its process ended of SIGKILL, and neither this run nor its"
    ):
        lane.finish()


def test_deaths_that_the_scenario_or_the_engine_wanted_are_none_of_ours(bench, lane):
    bench.e0.kill()
    bench.e0.restart()
    assert bench.e0.call("resume_memory_occupation", {}, timeout_s=60).ending == "dropped"
    assert bench.e0._process.process.wait(100) == -signal.SIGKILL
    assert bench.e0.call("model_info", method="GET").ending == "refused"
    records = lane.finish()
    assert [len([r for r in trace if getattr(r, "name", "") == "die"]) for trace in records] == [0, 1]


def test_payloads_without_room_are_no_failure_of_the_client(bench, lane, tmp_path, monkeypatch):
    """Its adapter catches the error, as any may: the verdict would be that it never sent anything."""
    kit = lane.trainer(1)
    monkeypatch.setattr(shm, "FOLDER", tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        kit.export(0, [("a", np.ones(3, np.float32))])
    with pytest.raises(
        HarnessError, match=r"nowhere: No such file or directory \(a payload of 12 bytes\); free some space"
    ):
        lane.finish()
    lane.finish()


def test_half_a_payload_is_not_left_behind():
    class Full(np.ndarray):
        def tobytes(self, *args, **kwargs):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        shm.SharedFile(np.zeros(3, np.uint8).view(Full))
    assert shm.leftovers() == [], caught  # whose traceback still holds the object
    assert shm.failures() == [f"{shm.FOLDER}: No space left on device (a payload of 3 bytes)"]


def test_a_folder_that_cannot_hold_the_model_is_told(bench, lane, monkeypatch):
    def write(path, config, weights):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("fakes.tiny.write_model", write)
    with pytest.raises(HarnessError, match="No space left on device; free some space, or set TMPDIR"):
        bench.e0  # noqa: B018  # starts it


def test_what_a_killed_run_left_goes_with_the_next(tmp_path, monkeypatch):
    code = """
        import sys, numpy as np
        from harness.lanes.http import HttpLane
        from fakes.trainer.shm import SharedFile
        lane = HttpLane()
        kept = SharedFile(np.zeros(5, np.uint8))
        print(lane.folder, kept.name, flush=True)
        sys.stdin.read()
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as run:
        folder, name = run.stdout.readline().split()
        mine = HttpLane()
        assert mine.folder != Path(folder)
        mine.close()
        assert Path(folder).exists()
        assert (shm.FOLDER / name).exists()
        run.send_signal(signal.SIGKILL)
        run.wait()
        assert (shm.FOLDER / name).exists()
        mine = HttpLane()
        assert mine.folder.name.startswith(PREFIX)
        mine.close()
    assert not Path(folder).exists()
    assert not (shm.FOLDER / name).exists()
    tempfile.tempdir = None


@pytest.mark.parametrize("family", ["", "torch_", "torch_1_", "../", "*", "torch_1_2_*"])
def test_a_note_that_is_no_family_sweeps_nothing(family, tmp_path, monkeypatch):
    monkeypatch.setattr(shm, "FOLDER", tmp_path)
    (tmp_path / "torch_1_2_3").write_text("x")
    shm.sweep(family)
    assert (tmp_path / "torch_1_2_3").exists()
    shm.sweep("torch_1_2_")
    assert not (tmp_path / "torch_1_2_3").exists()
