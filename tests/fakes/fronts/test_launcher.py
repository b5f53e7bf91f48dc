"""Servers by fork: each begins like a fresh process, dies alone, and none outlives the one who asked for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import httpx
import psutil
import pytest

from fakes.fronts.launcher import Launcher
from fakes.fronts.started import StartError
from tests.fakes.fronts.conftest import ROOT, SCRIPTED, ended


@pytest.fixture(scope="module")
def launcher():
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture
def fork(launcher, model):
    servers = []

    def fork(*args, core="", log=None):
        extra = ["--core", core] if core else []
        fixed = ["--model-path", str(model), "--time-scale", "0.05", "--log-level", "error"]
        servers.append(launcher.start([*fixed, *extra, *args], log=log))
        return servers[-1]

    yield fork
    for server in servers:
        server.stop()


def version(server):
    return httpx.get(f"{server.url}/model_info", timeout=100).json()["weight_version"]


def test_servers_are_processes_of_their_own_and_know_nothing_of_each_other(fork):
    one, two = fork("--weight-version", "one"), fork()
    assert one.pid != two.pid
    assert one.url != two.url
    httpx.post(f"{one.url}/update_weight_version", json={"new_version": "else", "abort_all_requests": False})
    assert (version(one), version(two), version(fork())) == ("else", "default", "default")


def test_one_that_is_killed_is_refused_at_once_and_the_others_stay(fork):
    one, two = fork(), fork()
    one.kill()
    assert (one.alive, one.returncode, two.alive) == (False, -signal.SIGKILL, True)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{one.url}/model_info")
    assert version(two) == "default"
    assert not psutil.pid_exists(one.pid)


def test_one_that_dies_of_itself_is_known_to_be_dead(fork):
    server = fork(core=SCRIPTED)
    with pytest.raises(httpx.HTTPError):
        httpx.post(f"{server.url}/die", json={"after": 0.1}, timeout=100)
    assert server.wait(100) == -signal.SIGKILL


def test_what_it_says_goes_to_its_log_and_a_wrong_option_is_told_with_it(fork, tmp_path):
    log = tmp_path / "log"
    with pytest.raises(StartError, match="ended with code 2 before it was ready") as caught:
        fork("--warp-speed", log=log)
    assert "unrecognized arguments: --warp-speed" in str(caught.value)
    assert "--warp-speed" in log.read_text()


def test_they_end_with_a_parent_that_was_killed_and_so_does_the_launcher(model):
    code = f"""
        import time
        from fakes.fronts.launcher import Launcher
        launcher = Launcher()
        server = launcher.start(["--model-path", {str(model)!r}, "--log-level", "error"])
        print(server.pid, launcher.pid, flush=True)
        time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        server, launcher = map(int, parent.stdout.readline().split())
        parent.kill()
        assert ended(server, 100)
        assert ended(launcher, 100)


def test_a_launcher_that_is_gone_is_a_start_error(model):
    launcher = Launcher()
    psutil.Process(launcher.pid).kill()
    with pytest.raises(StartError, match="the launcher"):
        launcher.start(["--model-path", str(model)])
    launcher.close()
