"""A survivor once more, in a fresh interpreter that imports the mutated source, with Hypothesis' full profile.

So a mutant that is seen only while modules are imported, or only by rare examples, is not called a survivor.
`python -m harness.mutate.fresh` reads one request as JSON on stdin and answers with one line of JSON.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from harness.mutate.child import Report
from harness.mutate.mutant import Mutant
from harness.mutate.sites import Site

PROFILE = "full"
WALL_S = 600.0
_ANSWER = "REFITCHECK-ANSWER "


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


def rerunner(
    request: dict[str, Any], workers: int, done: Callable[[], None]
) -> Callable[[list[tuple[Mutant, list[str]]]], dict[str, Report]]:
    """A plan's `rerun`: one process a survivor, `workers` at a time. `request` says how to make the checks."""

    def one(mutant: Mutant, checks: list[str]) -> tuple[str, Report]:
        return mutant.id, _ask(
            {**request, "mutant": mutant.id, "module": mutant.module, "file": _file(mutant), "checks": checks}
        )

    def rerun(todo: list[tuple[Mutant, list[str]]]) -> dict[str, Report]:
        out: dict[str, Report] = {}
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(one, mutant, checks) for mutant, checks in todo]
            try:
                for future in as_completed(futures):
                    name, report = future.result()
                    out[name] = report
                    done()
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        return out

    return rerun


def _file(mutant: Mutant) -> str:
    return str(mutant.op.source.path) if isinstance(mutant.op, Site) else ""


def _ask(request: dict[str, Any]) -> Report:
    environment = {**os.environ, "HYPOTHESIS_PROFILE": PROFILE, "PYTHONHASHSEED": "0"}
    started = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "harness.mutate.fresh"],
            input=json.dumps(request),
            text=True,
            capture_output=True,
            timeout=WALL_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Report("timeout", text=f"\nfresh interpreter: no end within {WALL_S:.0f} s", seconds=WALL_S)
    seconds = time.monotonic() - started
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_ANSWER):
            answer = json.loads(line[len(_ANSWER) :])
            text = f"{answer['check']}\n{answer['text']}"
            return Report(answer["ending"], -1, answer["rule"], text, answer["ran"], seconds)
    said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return Report("crash", text=f"\nfresh interpreter: {said[:200]}", seconds=seconds)


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
    """One request, one answer."""
    request = json.load(sys.stdin)
    try:
        said = answer(request)
    except BaseException as error:
        from harness.mutate.checks import one_line

        said = {"ending": "crash", "check": "", "rule": "", "text": one_line(error), "ran": 0}
    sys.stdout.write("\n" + _ANSWER + json.dumps(said) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
