"""A session's results in the mutation-testing-report schema 2.0 (Stryker's), which many viewers read.

A misattributed mutant counts as survived there: somebody noticed, but not the rule that promises to.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.mutate.checks import Check
from harness.mutate.mutant import Place, Result
from harness.mutate.plan import Outcome

SCHEMA = "2.0"
STATUS = {
    "killed": "Killed",
    "misattributed": "Survived",
    "crash": "RuntimeError",
    "timeout": "Timeout",
    "survived": "Survived",
    "not covered": "NoCoverage",
    "equivalent": "Ignored",
    "elsewhere": "Ignored",
    "error": "CompileError",
}


class _Tests:
    """The tests of the report: one for each pytest item, and one for each rule of each scenario."""

    def __init__(self, checks: Iterable[Check], root: Path) -> None:
        self.files: dict[str, dict[str, Any]] = {}
        self._ids: dict[tuple[str, str], str] = {}
        self._by_check: dict[str, list[str]] = {}
        for check in checks:
            names = _names(check)
            path = _relative(check.path, root) if check.path else check.id.partition(" ")[0]
            for key, name in names:
                if key not in self._ids:
                    self._ids[key] = str(len(self._ids))
                    file = self.files.setdefault(path, {"tests": []})
                    file["tests"].append({"id": self._ids[key], "name": name})
                self._by_check.setdefault(check.id, []).append(self._ids[key])

    def killers(self, result: Result) -> list[str]:
        """The test that killed it."""
        if not result.by or result.verdict not in ("killed", "timeout", "crash"):
            return []
        key = (result.rule if "::" not in result.by else "", _scenario(result.by))
        return [self._ids[key]] if key in self._ids else self._by_check.get(result.by, [])[:1]

    def covering(self, result: Result) -> list[str]:
        """The tests that could have seen it; of a catalogue mutant those of its declared rules."""
        if result.generic:
            found = [i for name in result.checks for i in self._by_check.get(name, [])]
        else:
            names = {_scenario(name) for name in result.checks}
            found = [i for (rule, name), i in self._ids.items() if rule in result.breaks and name in names]
        return sorted({*found, *self.killers(result)}, key=int)


def _scenario(check: str) -> str:
    return check if "::" in check else check.partition(" [")[0]


def _names(check: Check) -> list[tuple[tuple[str, str], str]]:
    if "::" in check.id:
        rules = f"{' '.join(sorted(check.rules))}: " if check.rules else ""
        return [(("", check.id), rules + check.id.partition("::")[2])]
    name = _scenario(check.id)
    return [((rule, name), f"{rule}: {name}") for rule in sorted(check.rules)] or [(("", name), name)]


def _relative(path: str, root: Path) -> str:
    try:
        return Path(path).resolve().relative_to(root).as_posix()
    except ValueError:
        return "/".join(Path(path).parts[-2:])


def report(outcome: Outcome, root: Path | None = None) -> dict[str, Any]:
    """The whole report as JSON-able data. Paths are relative to `root` (the working folder)."""
    root = (root or Path.cwd()).resolve()
    tests = _Tests(outcome.checks, root)
    files: dict[str, dict[str, Any]] = {}
    for result in outcome.results:
        place = result.place or Place("catalogue", 1, 1, 1, 2)
        name = _relative(place.path, root)
        if name not in files:
            files[name] = {"language": "python", "source": _read(place.path), "mutants": []}
        files[name]["mutants"].append(_mutant(result, place, tests))
    return {
        "schemaVersion": SCHEMA,
        "thresholds": {"high": 90, "low": 75},
        "projectRoot": ".",
        "files": files,
        "testFiles": tests.files,
        "framework": {"name": "refitcheck", "version": _version(), "dependencies": _dependencies()},
        "performance": {
            "setup": 0,
            "initialRun": round(1000 * sum(m.seconds for m in outcome.baseline.measured)),
            "mutation": round(1000 * outcome.mutating_s),
        },
    }


def _mutant(result: Result, place: Place, tests: _Tests) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": result.id,
        "mutatorName": result.op,
        "location": {
            "start": {"line": place.line, "column": place.column},
            "end": {"line": place.end_line, "column": place.end_column},
        },
        "status": STATUS[result.verdict],
        "statusReason": reason(result),
        "coveredBy": tests.covering(result),
        "killedBy": tests.killers(result),
        "testsCompleted": result.ran,
        "duration": round(result.seconds * 1000, 3),
    }
    if result.replacement:
        made["replacement"] = result.replacement
    if result.description or result.origin:
        made["description"] = ". ".join(filter(None, (result.description, result.origin)))
    return made


def reason(result: Result) -> str:
    """One line: who noticed and what it said, or who should have."""
    declared = f" (declared: {', '.join(result.breaks)})" if result.breaks else ""
    who = result.rule or result.by
    if result.verdict == "killed":
        return f"killed by {who}: {result.detail}"
    if result.verdict == "misattributed":
        return f"misattributed: noticed by {who}{declared}: {result.detail}"
    if result.verdict in ("crash", "timeout"):
        return f"{result.verdict} in {result.by}: {result.detail}"
    if result.verdict in ("equivalent", "elsewhere", "error"):
        return f"{result.verdict}: {result.detail}"
    why = f": {result.detail}" if result.verdict == "survived" and result.detail else ""
    return f"{result.verdict}{declared}{why}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8") or "\n"
    except OSError:
        return "\n"


def _version() -> str:
    try:
        return version("refitcheck")
    except PackageNotFoundError:
        return "0"


def _dependencies() -> dict[str, str]:
    out = {}
    for name in ("pytest", "coverage", "hypothesis"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out
