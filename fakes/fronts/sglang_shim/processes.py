"""The small change of `sglang.srt.utils`: ends of processes, limits, checks of the machine."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
from typing import Any


def kill_process_tree(
    parent_pid: int | None, include_parent: bool = True, skip_pid: int | None = None, wait_timeout: float | None = 60
) -> None:
    """SIGKILL for a process and its children; the calling process itself ends with sys.exit(0).

    Source: utils/common.py:2507@0.5.23. RuntimeError when a killed process is not gone after `wait_timeout` seconds.
    """
    import psutil

    if parent_pid is None:
        parent_pid, include_parent = os.getpid(), False
    try:
        process = psutil.Process(parent_pid)
        ended = [child for child in process.children(recursive=True) if child.pid != skip_pid]
    except psutil.NoSuchProcess:
        return
    if include_parent and parent_pid != os.getpid():
        ended.append(process)
    for one in ended:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    if include_parent and parent_pid == os.getpid():
        sys.exit(0)
    if wait_timeout is not None and psutil.wait_procs(ended, timeout=wait_timeout)[1]:
        raise RuntimeError(f"processes of {parent_pid} are not gone after {wait_timeout} s")


def assert_pkg_version(pkg: str, min_version: str, message: str) -> None:
    """Exception when `pkg` is older than that, or not installed."""
    from packaging.version import parse

    try:
        there = importlib.metadata.version(pkg)
    except importlib.metadata.PackageNotFoundError:
        raise Exception(f"{pkg} with minimum required version {min_version} is not installed. {message}") from None
    if parse(there) < parse(min_version):
        raise Exception(
            f"{pkg} is installed with version {there}, which is less than the minimum required version {min_version}. "
            f"{message}"
        )


def is_cuda() -> bool:
    """The fakes serve CPUs."""
    return False


def get_bool_env_var(name: str, default: str = "false") -> bool:
    """true and 1, in any case."""
    return os.getenv(name, default).lower() in ("true", "1")


def set_ulimit(target_soft_limit: int = 65535) -> None:
    """Limits of this machine are not touched."""


def set_prometheus_multiproc_dir() -> None:
    """Nothing is exported to Prometheus."""


NAMES: dict[str, Any] = {
    "kill_process_tree": kill_process_tree,
    "assert_pkg_version": assert_pkg_version,
    "is_cuda": is_cuda,
    "get_bool_env_var": get_bool_env_var,
    "set_ulimit": set_ulimit,
    "set_prometheus_multiproc_dir": set_prometheus_multiproc_dir,
}
