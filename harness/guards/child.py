"""A job for a child process: what a guard has to execute is executed there, and ended with all that it started."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from harness.adopting import adopting
from harness.errors import UsageError
from harness.words import quoted

MAX_ANSWER = 1 << 20
MAX_PRINTED = 4096  # of what the child prints, its end
MAX_LIMIT_S = 86_400.0
JOBS = Path(__file__).with_name("jobs.py")
MARK = "REFITCHECK_GUARD"  # in the environment of a child and of all that it starts


def ask_child(job: str, asked: Mapping[str, Any], paths: Sequence[str] = (), limit_s: float = 60.0) -> dict[str, Any]:
    """What `harness.guards.jobs:JOB` answers to `asked` (JSON) in a fresh interpreter that sees `paths` first.

    It runs without our packages, so that modules named like them are the user's. UsageError, in one line, when it does
    not answer within `limit_s` real seconds (at most a day) or ends without an answer: both are the doing of the code
    that was imported there.
    """
    try:
        folder = os.getcwd()
    except OSError:
        raise UsageError("the working folder is gone: change to one that is there") from None
    for path in paths:
        if not os.path.isdir(path):
            raise UsageError(f"--path {quoted(path)}: no such folder")
    nonce = secrets.token_hex(16)
    question = {**asked, "nonce": nonce, "paths": [*paths, *_already(), folder]}
    with adopting(lambda pid: _is_marked(pid, nonce)), _started(job, nonce) as (child, answer, printed):
        told, said = _heard(child, question, answer, printed, time.monotonic() + min(limit_s, MAX_LIMIT_S))
    if told is None:
        raise UsageError(f"{_who(asked)}: it has not come back after {limit_s:g} s")
    try:
        found = json.loads(told)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.pop("nonce", None) != nonce:
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        more = f": {quoted(last[0], 200)}" if last else ""
        raise UsageError(f"{_who(asked)}: it ended the process with {child.returncode}{more}")
    if found.get("usage"):
        raise UsageError(quoted(found["usage"], 400))
    return found


@contextmanager
def _started(job: str, nonce: str) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """The child, and where its answer and what it prints can be read. Nothing of it is left afterwards."""
    answer, theirs = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", str(JOBS), job, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs,),
            env={**os.environ, MARK: _mark(nonce)},
            start_new_session=True,
        )
    except BaseException:
        os.close(answer)
        raise
    finally:
        os.close(theirs)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield child, answer, child.stdout.fileno()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        os.close(answer)
        child.stdout.close()
        with suppress(OSError):
            child.stdin.close()


def _heard(
    child: subprocess.Popen[bytes], question: Mapping[str, Any], answer: int, printed: int, until: float
) -> tuple[bytes | None, bytes]:
    """(its answer, the end of what it printed) when its answer is whole or can come no more; None at the deadline."""
    assert child.stdin is not None
    with suppress(BrokenPipeError):
        child.stdin.write(json.dumps(question).encode() + b"\n")
        child.stdin.flush()  # and stays open: its end tells the child that we are gone
    told, said = bytearray(), bytearray()
    open_ones = [answer, printed]
    while answer in open_ones:
        ready, _, _ = select.select(open_ones, [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None, bytes(said)
        for one in ready:
            chunk = os.read(one, 1 << 16)
            if not chunk:
                open_ones.remove(one)
            elif one == printed:
                said = (said + chunk)[-MAX_PRINTED:]
            else:
                told += chunk
                if len(told) > MAX_ANSWER or told.endswith(b"\n"):
                    return bytes(told), bytes(said)
    with suppress(subprocess.TimeoutExpired):
        child.wait(1.0)  # for its exit code: the pipe is closed a moment earlier
    return bytes(told), bytes(said)


def _mark(nonce: str) -> str:
    """Another word than the one that an answer must have."""
    return hashlib.sha256(nonce.encode()).hexdigest()


def _is_marked(pid: int, nonce: str) -> bool:
    """Whether a guard's child began it; what has ended is nobody's."""
    with suppress(psutil.Error):
        return psutil.Process(pid).environ().get(MARK) == _mark(nonce)
    return False


def _who(asked: Mapping[str, Any]) -> str:
    found = [value for key, value in asked.items() if key in ("drivers", "target")]
    return quoted(", ".join(one for value in found for one in ([value] if isinstance(value, str) else value)), 200)


def _already() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
