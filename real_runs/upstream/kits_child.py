"""Runs inside SGLang's interpreter, standalone: classes of its test kits, loaded from their files, against one URL.

Arguments: the folder of the kits, the URL, JSON {kit: {class: {attribute: value}}}, and a JSON list of tests to leave
out. One JSON line a test comes out: [kit, class, test, "passed" or the last line of what went wrong].
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
import unittest
import urllib.request
from pathlib import Path
from typing import Any


class Process:
    """What a kit takes for the server's process: alive as long as it answers."""

    def __init__(self, url: str) -> None:
        self._url = url

    def poll(self) -> int | None:
        """None while it lives."""
        try:
            with urllib.request.urlopen(self._url + "/ping", timeout=10):
                return None
        except OSError:
            return 1


def load(path: Path) -> types.ModuleType:
    """The module of a kit's file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Run and tell."""
    folder, url, wanted, left_out = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
    for kit, classes in wanted.items():
        module = load(folder / f"{kit}.py")
        for name, knobs in classes.items():
            given: dict[str, Any] = {"base_url": url, "process": Process(url), **knobs}
            case = type(name, (getattr(module, name), unittest.TestCase), given)
            for test in unittest.defaultTestLoader.getTestCaseNames(case):
                if test in left_out:
                    continue
                result = unittest.TestResult()
                case(test).run(result)
                problems = [text for _, text in (*result.failures, *result.errors)]
                line = problems[0].strip().splitlines()[-1] if problems else "passed"
                sys.stdout.write(json.dumps([kit, name, test, line]) + "\n")


if __name__ == "__main__":
    main()
