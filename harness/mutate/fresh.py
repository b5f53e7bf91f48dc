"""A survivor once more, in a fresh interpreter that imports the mutated source, with Hypothesis' full profile.

So a mutant that is seen only while modules are imported, or only by rare examples, is not called a survivor.
`python -m harness.mutate.fresh` imports installed packages, nothing of the project; then it reads requests, one JSON
object a line, and answers each from a child that collects, imports and runs everything anew.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.mutate.baseline import HEAVY
from harness.mutate.forked import forked
from harness.mutate.jobs import Report
from harness.mutate.mutant import Mutant
from harness.mutate.sites import Site

PROFILE = "full"
WALL_S = 600.0
OWN = ("fakes", "harness", "conformance", "real_runs", "_hypothesis_pytestplugin")


class _Mutated(importlib.machinery.SourceFileLoader, importlib.abc.MetaPathFinder):  # type: ignore[misc]
    """Finds one module where it is, and compiles the mutated tree instead of its text."""

    def __init__(self, name: str, path: str, tree: Any) -> None:
        super().__init__(name, path)
        self._tree = tree

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> Any:
        return compile(self._tree, self.path, "exec", dont_inherit=True)


def install(mutant_id: str, module: str, path: str) -> None:
    """Make the import of `module`, whose source is `path`, give the generic mutant `mutant_id`."""
    from harness.mutate import operators
    from harness.mutate.source import TargetError, parse

    if module in sys.modules:
        raise TargetError(f"{module} is a part of the mutation runner itself: it cannot be mutated at import")
    source = parse(module, Path(path))
    for site in operators.sites(source):
        if site.id == mutant_id:
            site.edit()
            sys.meta_path.insert(0, _Mutated(module, path, source.tree))
            return
    raise TargetError(f"unknown mutant {mutant_id}")


Rerun = Callable[[Sequence[tuple[Mutant, list[str]]]], Iterator[tuple[str, Report]]]


def rerunner(request: dict[str, Any], workers: int) -> Rerun:
    """A plan's `rerun`: `workers` fresh interpreters share the survivors. `request` says how to make the checks.

    Reports come as they are ready; a caller that stops early leaves nothing running.
    """

    def rerun(todo: Sequence[tuple[Mutant, list[str]]]) -> Iterator[tuple[str, Report]]:
        waiting: queue.SimpleQueue[tuple[Mutant, list[str]]] = queue.SimpleQueue()
        ready: queue.SimpleQueue[tuple[str, Report]] = queue.SimpleQueue()
        for item in todo:
            waiting.put(item)
        preload = third_party()
        interpreters = [_Interpreter(preload) for _ in range(min(workers, len(todo)))]

        def serve(interpreter: _Interpreter) -> None:
            with contextlib.suppress(queue.Empty):
                while not interpreter.closed:
                    mutant, checks = waiting.get_nowait()
                    asked = {"mutant": mutant.id, "module": mutant.module, "file": _file(mutant), "checks": checks}
                    ready.put((mutant.id, interpreter.ask({**request, **asked})))

        threads = [threading.Thread(target=serve, args=(i,), daemon=True) for i in interpreters]
        try:
            for thread in threads:
                thread.start()
            for _ in todo:
                yield ready.get()
        finally:
            for interpreter in interpreters:
                interpreter.close()
            for thread in threads:
                thread.join()

    return rerun


def third_party() -> list[str]:
    """What this process has imported from installed packages: a fresh interpreter may have that before any mutant."""
    libraries = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))
    found = []
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if path.startswith(libraries) and name.partition(".")[0] not in (*HEAVY, *OWN):
            found.append(name)
    return found


class _Interpreter:
    """A fresh interpreter that has imported third-party packages and forks for each survivor."""

    def __init__(self, preload: list[str]) -> None:
        self._preload = preload
        self._process: subprocess.Popen[str] | None = None
        self.closed = False

    def close(self) -> None:
        """End it, and the child that it may have."""
        self.closed = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()

    def ask(self, request: dict[str, Any]) -> Report:
        """What one request gave."""
        started = time.monotonic()
        if self._process is None or self._process.poll() is not None:
            environment = {**os.environ, "HYPOTHESIS_PROFILE": PROFILE}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.mutate.fresh"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
                start_new_session=True,
            )
            self._write({"preload": self._preload})
        try:
            self._write(request)
            assert self._process.stdout is not None
            said = json.loads(self._process.stdout.readline() or "null")
        except (OSError, ValueError):
            said = None
        if said is None:
            return Report("crash", text="\nthe fresh interpreter ended", seconds=time.monotonic() - started)
        text = f"{said['check']}\n{said['text']}"
        return Report(said["ending"], -1, said["rule"], text, said["ran"], time.monotonic() - started)

    def _write(self, data: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(data) + "\n")
        self._process.stdin.flush()


def _file(mutant: Mutant) -> str:
    return str(mutant.op.source.path) if isinstance(mutant.op, Site) else ""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Make the mutant and run its checks until one notices."""
    sys.path[:0] = [p for p in request.get("path", []) if p not in sys.path]
    from harness.mutate import hosts

    said: dict[str, Any] = {"ending": "survived", "check": "", "rule": "", "text": "", "ran": 0}
    generic = bool(request["file"])
    if generic:
        try:
            install(request["mutant"], request["module"], request["file"])
        except ImportError as error:
            return {**said, "ending": "killed", "text": f"does not import: {error}"}

    def use(host: Any) -> dict[str, Any]:
        if not generic:
            from harness.mutate.catalogue import find
            from harness.mutate.program import Program

            mutant = find(request["mutant"], request["catalogues"])
            mutant.op.apply(mutant.target, Program([mutant.module]))
        wanted: Sequence[str] = request["checks"]
        by_id = {check.id: check for check in host.checks}
        try:
            for name in wanted:
                if name not in by_id:
                    return {
                        **said,
                        "ending": "killed",
                        "check": name,
                        "text": "the check is gone: nothing collects it any more",
                    }
                said["ran"] += 1
                for finding in by_id[name].run():
                    ending = "crash" if finding.crash else "killed"
                    return {**said, "ending": ending, "check": name, "rule": finding.rule, "text": finding.text}
        finally:
            host.close()
        return said

    return hosts.with_host(request["host"], use, hot=False, only=frozenset(request["checks"]))


def main() -> None:
    """Import what the first line names, then answer each request in a child of its own."""
    for name in json.loads(sys.stdin.readline())["preload"]:
        try:
            importlib.import_module(name)
        except BaseException:
            continue
    for line in sys.stdin:
        request = json.loads(line)
        said = forked(functools.partial(_answer, request), WALL_S)
        if isinstance(said, str):
            said = {"ending": "timeout", "check": "", "rule": "", "text": f"fresh interpreter: {said}", "ran": 0}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return answer(request)
    except BaseException as error:
        from harness.mutate.checks import one_line

        return {"ending": "crash", "check": "", "rule": "", "text": one_line(error), "ran": 0}


if __name__ == "__main__":
    main()
