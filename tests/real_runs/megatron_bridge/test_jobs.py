"""Megatron jobs with a stub in Megatron's place: orders, answers, and how ranks and their process end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from fakes.tiny import tiny_config, tiny_weights
from real_runs.megatron_bridge import jobs
from tests.real_runs.megatron_bridge import stub

CONFIG = tiny_config(num_hidden_layers=1)
STATE = tiny_weights(CONFIG, 0)


@pytest.fixture
def host(tmp_path):
    made = stub.host(tmp_path)
    yield made
    made.close()


@pytest.fixture
def job(host):
    made = jobs.Job(host, 2, 2, 1)
    yield made
    made.close()


def walked(job):
    """Every rank's export, taken in step."""
    for rank in range(job.world):
        job.begin(rank)
    out = [[] for _ in range(job.world)]
    while True:
        for rank in range(job.world):
            job.ask(rank)
        items = [job.take(rank) for rank in range(job.world)]
        if None in items:
            assert items == [None] * job.world
            return out
        for mine, (name, tensor) in zip(out, items, strict=True):
            mine.append((name, tensor.tolist(), str(tensor.dtype), tensor.shape))


def test_every_rank_gives_the_whole_export_again_and_again(job):
    assert job.load(CONFIG, STATE) == [7, 7]
    wanted = [("a", [-1.0, -2.0], "float32", (2,)), ("b", [-3.0], "float32", (1,)), ("c", [], "float32", (0,))]

    assert walked(job) == [wanted, wanted]
    assert walked(job) == [wanted, wanted]
    assert job.fit


def test_the_checkpoint_has_the_negative_of_the_state(job, monkeypatch):
    written = {}
    monkeypatch.setattr(jobs, "write_model", lambda folder, config, state: written.update(state) or folder.mkdir())
    with pytest.raises(jobs.JobFailed, match="AssertionError"):  # of the stub: nothing was written
        job.load(CONFIG, STATE)

    assert set(written) == set(STATE)
    assert all(np.array_equal(-values, STATE[name]) for name, values in written.items())


def test_one_checkpoint_at_most_lies_on_disk_and_none_after_the_job(job):
    for _ in range(3):
        job.load(CONFIG, STATE)
    folder = job._folder
    assert len(list(folder.glob("checkpoint-*"))) == 1
    job.close()
    assert not folder.exists()
    job.host.close()
    assert not job.host.folder.exists()


def test_ranks_are_told_how_the_model_is_cut(host):
    job = jobs.Job(host, 4, 1, 2)
    assert [Path(f"{job._folder}/store.{rank}").read_text() for rank in range(4)] == ["1 2"] * 4
    job.close()


def test_a_rank_that_is_not_sent_on_is_named_by_the_ones_that_wait(job):
    for rank in (0, 1):
        job.begin(rank)
    job.ask(0)

    with pytest.raises(jobs.JobFailed, match=r"rank 0 .* has not answered within 0\.2 s; not on its step: .* 1$"):
        job.take(0, 0.2)
    assert not job.fit


def test_ranks_that_stopped_at_the_same_step_may_go_on_and_others_not(job):
    for rank in (0, 1):
        job.begin(rank)
        job.ask(rank)
    assert [job.take(rank)[0] for rank in (0, 1)] == ["a", "a"]
    assert job.fit
    job.ask(0)
    job.ask(1)
    job.take(0)
    job.take(1)
    job.ask(0)
    assert not job.fit


def test_what_a_rank_raises_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("STUB_LOAD", "raises")
    host = stub.host(tmp_path)
    job = jobs.Job(host, 2, 2, 1)

    with pytest.raises(jobs.JobFailed, match=r"^trainer rank 1 of megatron-bridge: ValueError: cannot load$"):
        job.load(CONFIG, STATE)
    assert job.broken
    job.close()
    host.close()


def test_a_rank_that_dies_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("STUB_LOAD", "dies")
    host = stub.host(tmp_path)
    job = jobs.Job(host, 2, 2, 1)

    with pytest.raises(jobs.JobFailed, match=r"^trainer rank 1 of megatron-bridge ended$"):
        job.load(CONFIG, STATE)
    job.close()
    host.close()


def test_an_import_that_fails_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("STUB_FAILS", "1")
    with pytest.raises(jobs.JobFailed, match=r"^the process that imports megatron-bridge: ImportError: no megatron$"):
        stub.host(tmp_path)


def test_settings_of_our_python_do_not_reach_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "ours"))
    made = stub.host(tmp_path)
    environment = psutil.Process(made._process.pid).environ()
    made.close()

    assert "PYTHONPATH" not in environment
    assert environment["OMP_NUM_THREADS"] == "1"


def test_closing_ends_every_process(host):
    job = jobs.Job(host, 2, 2, 1)
    ranks = [psutil.Process(pid) for pid in job._pids]
    job.close()
    assert psutil.wait_procs(ranks, timeout=20)[1] == []
    host.close()
    assert not host.alive
    with pytest.raises(jobs.JobFailed, match="its process is gone"):
        host.fork("somebody")


def test_nothing_outlives_who_was_killed(tmp_path):
    """Not the process, not a rank that waits in a collective, and no folder."""
    command = [sys.executable, "-m", "tests.real_runs.megatron_bridge.stub", str(tmp_path)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout is not None
        *pids, folder = child.stdout.readline().split()
        left = [psutil.Process(int(pid)) for pid in pids]
        assert Path(folder).exists()
        os.kill(child.pid, signal.SIGKILL)
        assert len(left) == 3
        assert psutil.wait_procs(left, timeout=20)[1] == []
    assert not Path(folder).exists()


class Hosts:
    """Counts the processes that a job asked for."""

    def __init__(self, tmp_path, monkeypatch):
        self.made, self.tmp_path, self.real = [], tmp_path, jobs.Host
        monkeypatch.setattr(jobs, "Host", self)
        monkeypatch.setattr(jobs, "_hosts", {})
        monkeypatch.setattr(jobs, "_jobs", {})

    def __call__(self, python):
        made = self.real(python, self.tmp_path / "bridge_host.py")
        self.made.append(made)
        return made


@pytest.fixture
def cached(tmp_path, monkeypatch):
    stub.host(tmp_path).close()
    hosts = Hosts(tmp_path, monkeypatch)
    yield hosts
    jobs.end_all()
    assert not any(host.alive for host in hosts.made)


def job_of(*size, python=sys.executable):
    return jobs.job_of(Path(python), *size)


def test_a_job_is_used_again_as_long_as_it_is_fit(cached):
    job = job_of(2, 2, 1)
    assert job_of(2, 2, 1) is job
    job.broken = "something"
    other = job_of(2, 2, 1)
    assert other is not job
    assert job.broken
    assert not job._pids
    assert len(cached.made) == 1


def test_a_process_that_is_gone_is_started_again(cached):
    job = job_of(1, 1, 1)
    cached.made[0].close()
    assert job_of(1, 1, 1) is not job
    assert len(cached.made) == 2


def test_another_environment_is_another_process(cached, tmp_path):
    job = job_of(1, 1, 1)
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    assert job_of(1, 1, 1, python=other) is not job
    assert job.broken
    assert [host.alive for host in cached.made] == [False, True]


def test_jobs_of_few_sizes_are_kept(cached):
    first = job_of(1, 1, 1)
    for size in ((2, 2, 1), (2, 1, 2)):
        job_of(*size)
    assert len(jobs._jobs) == jobs.KEPT
    assert first.broken
