"""Headless Chromium over its debugging pipe: enough to open a file, run JavaScript in it and wait for what it shows."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "apt-get update && apt-get install -y chromium"


def executable() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page. `errors` collects what its scripts threw and what it tried to fetch and could not."""

    def __init__(self, profile: Path, timeout_s: float = 400.0) -> None:
        program = executable()
        assert program is not None
        self._timeout_s, self._data, self._id = timeout_s, b"", 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def descriptors() -> None:
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        self._process = subprocess.Popen(
            [
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=descriptors,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._session = ""
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        attached = self._ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: Any, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def open(self, path: Path) -> None:
        """Load a file and wait until it is loaded."""
        self._ask("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression."""
        made = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in made:
            raise AssertionError(f"{script}: {made['exceptionDetails']}")
        return made["result"].get("value")

    def wait(self, script: str) -> Any:
        """The value of an expression as soon as it is true."""
        deadline = time.monotonic() + self._timeout_s
        while not (value := self.run(script)):
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {script}")
            self.run("new Promise(done => setTimeout(done, 20))")
        return value

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._id:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result
            self._note(found)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._timeout_s
        while b"\0" not in self._data:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "chromium does not answer"
            more = os.read(self._read, 1 << 20)
            assert more, "chromium ended"
            self._data += more
        one, _, self._data = self._data.partition(b"\0")
        found: dict[str, Any] = json.loads(one)
        return found
