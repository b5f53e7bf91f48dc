"""The way to an oracle: a child process with SGLang's interpreter, JSON lines over its pipes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from harness.errors import HarnessError
from real_runs.fuzz.payloads import KINDS, pickled
from real_runs.fuzz.steps import Answer, Step

START_S = 300.0
"""SGLang's imports take 13 s of CPU; a busy machine needs minutes."""


class Oracle(Protocol):
    """Who answers steps on a fresh weight updater. `version` as it says itself; `parts` are what of it is SGLang's
    own; `digest` is the sha256 of the manager's file."""

    version: str
    parts: Sequence[str]
    digest: str

    def play(self, steps: Sequence[Step]) -> list[Answer]:
        """What each step did, up to the first exception."""
        ...


class OracleProcess:
    """SGLang's manager in a child process. HarnessError, in one line, when it does not start or goes away."""

    def __init__(self, python: Path, checkout: Path | None = None) -> None:
        script = Path(str(resources.files("real_runs.fuzz.oracle"))) / "oracle_child.py"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [str(python), str(script), *([] if checkout is None else ["--checkout", str(checkout)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            env=environment | {"SGLANG_USE_CPU_ENGINE": "1"},
            cwd=tempfile.gettempdir(),
        )
        try:
            self._ready(self._read())
        except BaseException:
            self.close()
            raise

    def _ready(self, said: dict[str, Any]) -> None:
        self.version, self.digest = str(said["version"]), str(said["digest"])
        self.parts: Sequence[str] = tuple(said["parts"])
        storages = {int(count): base64.b64decode(data) for count, data in said["storages"].items()}
        named = {kind: pickled(kind, storages.__getitem__) for kind in (*KINDS, "garbage", "nothing")}
        if "unpickler" not in self.parts:
            named = {kind: kind.encode() for kind in named}
        self._ask({"payloads": {kind: base64.b64encode(data).decode() for kind, data in named.items()}})

    def play(self, steps: Sequence[Step]) -> list[Answer]:
        """What each step did, up to the first exception."""
        answers: list[Answer] = self._ask({"steps": list(steps)})
        return answers

    def close(self) -> None:
        """End the process, and its group."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def __enter__(self) -> OracleProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._gone() from None
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._gone()
        return json.loads(line)

    def _gone(self) -> HarnessError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._log.seek(0)
        last = self._log.read().decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        return HarnessError(f"the oracle's process ended ({self._process.returncode}): {last[0]}")


def plain_python() -> Path:
    """An interpreter for a checkout: ours, whose torch and msgspec suffice."""
    return Path(sys.executable)
