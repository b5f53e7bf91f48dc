"""What a change touched: mutants in functions whose lines changed, and mutants that a changed test or scenario sees."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.mutate.checks import Check
from harness.mutate.mutant import Mutant
from harness.mutate.sites import Site

_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def changed_lines(revision: str, folder: Path | None = None) -> dict[str, set[int]]:
    """Lines of the working tree that differ from `revision`, by absolute path; an untracked Python file counts whole.

    UsageError when git does not know the revision, or when this is no repository.
    """
    if revision.startswith("-"):
        raise UsageError(f"--since {revision!r} is not a git revision")
    here = (folder or Path.cwd()).resolve()
    root = Path(_git(here, "rev-parse", "--show-toplevel").strip())
    out: dict[str, set[int]] = {}
    current: set[int] = set()
    for line in _git(here, "diff", "--unified=0", "--no-color", "--no-ext-diff", revision, "--").splitlines():
        if line.startswith("+++ "):
            name = line[4:].partition("\t")[0]
            current = out.setdefault(str(root / name.removeprefix("b/")), set()) if name != "/dev/null" else set()
        elif found := _HUNK.match(line):
            start, count = int(found[1]), int(found[2] or "1")
            current.update(range(start, start + max(count, 1)))
    for name in _git(root, "ls-files", "--others", "--exclude-standard", "*.py").splitlines():
        path = root / name
        out[str(path)] = set(range(1, len(path.read_text(encoding="utf-8", errors="replace").splitlines()) + 1))
    return out


def _git(folder: Path, *args: str) -> str:
    try:
        done = subprocess.run(["git", *args], cwd=folder, text=True, capture_output=True, check=False)
    except OSError as error:
        raise UsageError(f"--since needs git: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["git failed"])[0]
        raise UsageError(f"--since: {said}")
    return done.stdout


def touched(changes: dict[str, set[int]], program: Any) -> Callable[[Mutant, Sequence[Check]], bool]:
    """Tell of a mutant and its checks whether the change may alter its verdict."""

    def hit(mutant: Mutant, checks: Sequence[Check]) -> bool:
        if any(str(Path(check.path).resolve()) in changes for check in checks if check.path):
            return True
        op: Any = mutant.op
        if isinstance(op, Site):
            path, function = op.source.path, op.function
        else:
            source = program.sources.get(mutant.module)
            functions = [f for f in source.functions if f.qualname == mutant.qualname] if source else []
            if not functions:
                return True  # not known where it is: it is run
            path, function = source.path, functions[-1]
        lines = changes.get(str(path.resolve()), set())
        return any(function.line <= line <= function.end_line for line in lines)

    return hit
