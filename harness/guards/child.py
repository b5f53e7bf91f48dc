"""A job for a child process: what a guard has to execute is executed there, and killed with all that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.errors import UsageError

MAX_ANSWER = 1 << 20
HOME = Path(__file__).resolve().parent.parent.parent


def ask_child(job: str, asked: Mapping[str, Any], paths: Sequence[str] = (), limit_s: float = 60.0) -> dict[str, Any]:
    """What `harness.guards.jobs:JOB` answers to `asked` (JSON) in a fresh interpreter that sees `paths` first.

    UsageError, in one line, when it does not end within `limit_s` real seconds or ends without an answer: both are the
    doing of the code that was imported there.
    """
    with tempfile.TemporaryDirectory(prefix="refitcheck-guard-") as folder:
        answer = Path(folder) / "answer.json"
        line = [sys.executable, "-m", "harness.guards.jobs", job, str(answer)]
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([*paths, str(HOME), *_already(environment)])
        with tempfile.TemporaryFile() as printed:
            child = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            try:
                child.communicate(json.dumps(asked).encode(), timeout=limit_s)
            except subprocess.TimeoutExpired:
                raise UsageError(f"{_who(asked)}: it has not come back after {limit_s:g} s") from None
            finally:
                _end(child)
            try:
                told = json.loads(answer.read_bytes()[:MAX_ANSWER])
            except (OSError, ValueError):
                printed.seek(max(0, printed.tell() - 4096))
                last = printed.read().decode(errors="replace").strip().splitlines()[-1:]
                said = f": {last[0][:200]}" if last else ""
                raise UsageError(f"{_who(asked)}: it ended the process with {child.returncode}{said}") from None
    if not isinstance(told, dict):
        raise UsageError(f"{_who(asked)}: no answer")
    if told.get("usage"):
        raise UsageError(str(told["usage"]))
    return told


def _who(asked: Mapping[str, Any]) -> str:
    found = [value for key, value in asked.items() if key in ("drivers", "target")]
    return ", ".join(one for value in found for one in ([value] if isinstance(value, str) else value))


def _already(environment: Mapping[str, str]) -> list[str]:
    return [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]


def _end(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
