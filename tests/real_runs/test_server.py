"""The supervisor, against a stub with SGLang's command line."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from real_runs import server as module
from real_runs import shared_memory
from real_runs.server import Server, ServerError, ServerSpec


def group_of(server):
    assert server._process is not None
    return server._process.pid


def blocks_of(server):
    """The shared memory and the semaphore that the stub's child made."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        found = re.search(r"BLOCK (\S+) (\S+)", server.log_text())
        if found:
            return [Path("/dev/shm") / found[1], Path(f"/dev/shm/sem.{found[2]}")]
    raise AssertionError(server.log_text())


def test_a_started_server_serves_and_a_stopped_one_refuses(server):
    server.start()

    assert server.alive
    assert server.client.request("GET", "model_info").body["path"] == "/model_info"
    client = server.client
    server.stop()
    assert not server.alive
    assert client.request("GET", "model_info").ending == "refused"


def test_stopping_ends_the_whole_group_and_its_shared_memory(server):
    server.start()
    blocks, group = blocks_of(server), group_of(server)
    assert all(block.exists() for block in blocks)
    assert len(shared_memory.group_pids(group)) >= 2

    server.stop()

    assert shared_memory.group_pids(group) == set()
    assert not any(block.exists() for block in blocks)


def test_a_death_is_told_with_its_cause_and_cleaned_up(server):
    server.start()
    blocks = blocks_of(server)
    server._note_resources()  # what is mapped at the ready line does not include the stub's late child

    outcome = server.client.request("GET", "die")

    assert outcome.ending == "dropped"
    assert server.wait_dead(300)
    assert server.returncode == -signal.SIGKILL
    assert server.cause_of_death() == "IndexError: list index out of range"
    assert server.client.request("GET", "model_info").ending == "refused"
    server.stop()
    assert not any(block.exists() for block in blocks)


def test_a_restart_is_a_new_incarnation_with_a_log_of_its_own(server):
    server.start()
    first = server.log_path
    server.start()

    assert server.incarnation == 2
    assert server.log_path != first
    assert server.alive


def test_a_server_that_ends_at_start_is_one_line_with_its_cause(server, monkeypatch):
    monkeypatch.setenv("STUB_MODE", "fail")

    with pytest.raises(ServerError, match=r"ended at start with code 3: ValueError: no such model \(log: "):
        server.start()
    assert not server.alive


def test_a_port_that_was_taken_meanwhile_is_tried_again(server, monkeypatch, tmp_path):
    monkeypatch.setenv("STUB_TAKEN_ONCE", str(tmp_path / "taken"))

    server.start()

    assert server.alive
    assert server.incarnation == 2


def test_a_server_that_never_gets_ready_is_ended(server, monkeypatch):
    monkeypatch.setenv("STUB_MODE", "silent")
    monkeypatch.setattr(module, "START_TIMEOUT_S", 1.0)

    with pytest.raises(ServerError, match="was not ready after 1 s"):
        server.start()
    assert not server.alive


def test_the_server_does_not_outlive_its_starter(stub_env, tmp_path):
    script = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from real_runs.env import SglangEnv
        from real_runs.server import Server, ServerSpec
        env = SglangEnv("0.5.23", Path({str(stub_env.python)!r}), Path({str(stub_env.folder)!r}))
        server = Server(env, ServerSpec("0.5.23", Path("model")), Path({str(tmp_path / "run")!r}))
        server.start()
        print(server._process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=os.getcwd())
    group = int(done.stdout)

    assert done.returncode == -signal.SIGKILL
    assert shared_memory.wait_gone(group, 300.0)


def test_the_minder_ends_with_its_server(server):
    server.start()
    minder = psutil.Process(server._minder.pid)

    server.stop()

    assert not minder.is_running()


def test_the_command_line_of_a_spec(tmp_path, monkeypatch):
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: {5, 3})
    spec = ServerSpec("0.5.23", tmp_path, tp=2, dtype="float32", api_key="a", admin_api_key="b", checker_cuda=True)
    arguments = spec.arguments(1234)
    environment = spec.environment()

    assert arguments[arguments.index("--tp-size") + 1] == "2"
    assert arguments[arguments.index("--dtype") + 1] == "float32"
    assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
    assert arguments[arguments.index("--admin-api-key") + 1] == "b"
    assert environment["SGLANG_CPU_OMP_THREADS_BIND"] == "3|5"
    assert environment["REFITCHECK_SHIM_TENSOR_CUDA"] == "1"


def test_ranks_share_the_only_core(tmp_path, monkeypatch):
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: {2})

    assert ServerSpec("0.5.23", tmp_path, tp=2).environment()["SGLANG_CPU_OMP_THREADS_BIND"] == "2|2"


def test_our_python_settings_do_not_reach_the_server(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/ours")

    assert "PYTHONPATH" not in ServerSpec("0.5.23", tmp_path).environment()
    assert "REFITCHECK_SHIM_TENSOR_CUDA" not in ServerSpec("0.5.23", tmp_path).environment()


def test_two_servers_stand_side_by_side(stub_env, tmp_path):
    servers = [Server(stub_env, ServerSpec("0.5.23", tmp_path / "m"), tmp_path / f"run{i}") for i in range(2)]
    try:
        for one in servers:
            one.start()
        assert servers[0].client.port != servers[1].client.port
        assert all(one.client.request("GET", "x").status == 200 for one in servers)
    finally:
        for one in servers:
            one.stop()


def test_a_server_goes_on_as_what_another_has_started(server, stub_env, tmp_path):
    server.start()
    old = server.client
    spare = Server(stub_env, server.spec, tmp_path / "spare")
    spare.start()
    port = spare.client.port
    server.adopt(spare)

    assert (server.incarnation, server.client.port, server.alive) == (2, port, True)
    assert server.client.request("GET", "x", timeout_s=300).status == 200
    assert old.request("GET", "x", timeout_s=300).ending == "refused"
    assert not spare.alive
    assert server.log_path == spare.log_path
    spare.stop()
    assert server.alive


def test_a_start_that_is_given_up_fails_soon(server, monkeypatch):
    monkeypatch.setenv("STUB_MODE", "silent")
    raised = []

    def start():
        try:
            server.start()
        except ServerError as error:
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    while thread.is_alive():
        server.give_up()
        thread.join(0.05)
    assert len(raised) == 1
    assert not server.alive


def test_a_port_leaves_room_for_the_one_that_an_old_engine_derives_from_it(monkeypatch):
    given = iter([60000, 55536, 55535])

    class Probe:
        def __init__(self):
            self.port = next(given)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def bind(self, address):
            pass

        def getsockname(self):
            return "127.0.0.1", self.port

    monkeypatch.setattr(module.socket, "socket", Probe)

    assert module.free_port() == 55535
