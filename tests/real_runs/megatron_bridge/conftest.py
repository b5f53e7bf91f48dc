import psutil
import pytest

from real_runs.megatron_bridge import jobs


@pytest.fixture(scope="session")
def nothing_stays():
    """One import of megatron-bridge for all tests (10 s); afterwards no process of it is left, and no folder."""
    yield
    hosts = [host for host in jobs._hosts.values() if host.alive]
    processes = [psutil.Process(host._process.pid) for host in hosts]
    family = [each for process in processes for each in (process, *process.children(recursive=True))]
    assert len(family) >= 2 * len(hosts)  # ranks of the last job, too
    jobs.end_all()
    assert psutil.wait_procs(family, timeout=30)[1] == []
    assert not any(host.folder.exists() for host in hosts)
