"""What a change touched: mutants in functions whose lines changed, and mutants that a changed test or scenario sees."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.mutate.checks import Check
from harness.mutate.mutant import Mutant
from harness.mutate.sites import Site

_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class Changes:
    """`lines`: what differs, by absolute path. `tracked`: the files that git knows."""

    lines: dict[str, set[int]]
    tracked: frozenset[str]


def changed_lines(revision: str, folder: Path | None = None) -> Changes:
    """Lines of the working tree that differ from `revision`; an untracked Python file counts whole.

    UsageError when git does not know the revision, or when this is no repository.
    """
    if revision.startswith("-"):
        raise UsageError(f"--since {revision!r} is not a git revision")
    here = (folder or Path.cwd()).resolve()
    root = Path(os.fsdecode(_git(here, "rev-parse", "--show-toplevel").removesuffix(b"\n")))
    lines: dict[str, set[int]] = {}
    for name in _names(root, "diff", *_PLAIN, "--name-only", "-z", revision, "--"):
        # One file at a time: what a patch calls its files depends on the user's settings and on quoting.
        patch = _git(root, "diff", *_PLAIN, "--unified=0", "--text", revision, "--", name) if _python(name) else b""
        lines[str(root / name)] = _new_lines(patch)
    for name in _names(root, "ls-files", "-z", "--others", "--exclude-standard"):
        lines[str(root / name)] = _all_lines(root / name) if _python(name) else set()
    return Changes(lines, frozenset(str(root / name) for name in _names(root, "ls-files", "-z")))


# Whatever the user's settings say of renames, colours, drivers and context.
_PLAIN = ("--no-renames", "--no-color", "--no-ext-diff", "--no-textconv", "--inter-hunk-context=0")


def _python(name: str) -> bool:
    return name.endswith(".py")


def _new_lines(patch: bytes) -> set[int]:
    found: set[int] = set()
    for line in patch.splitlines():
        if hunk := _HUNK.match(line):
            start, count = int(hunk[1]), int(hunk[2] or b"1")
            found.update(range(start, start + max(count, 1)))
    return found


def _all_lines(path: Path) -> set[int]:
    try:
        return set(range(1, len(path.read_bytes().splitlines()) + 1))
    except OSError:
        return set()  # a link to nothing: no import reads it either


def _names(root: Path, *args: str) -> list[str]:
    return [os.fsdecode(name) for name in _git(root, *args).split(b"\0") if name]


def _git(folder: Path, *args: str) -> bytes:
    try:
        done = subprocess.run(["git", "--literal-pathspecs", *args], cwd=folder, capture_output=True, check=False)
    except OSError as error:
        raise UsageError(f"--since needs git: {error.strerror}") from error
    if done.returncode:
        said = (os.fsdecode(done.stderr).strip().splitlines() or ["git failed"])[0]
        raise UsageError(f"--since: {said}")
    return done.stdout


def touched(changes: Changes, program: Any) -> Callable[[Mutant, Sequence[Check]], bool]:
    """Tell of a mutant and its checks whether the change may alter its verdict."""

    def hit(mutant: Mutant, checks: Sequence[Check]) -> bool:
        if any(str(Path(check.path).resolve()) in changes.lines for check in checks if check.path):
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
        file = str(path.resolve())
        if file not in changes.lines and file not in changes.tracked:
            return True  # ignored, in a submodule or outside: git cannot say that it is as it was
        lines = changes.lines.get(file, set())
        return any(function.line <= line <= function.end_line for line in lines)

    return hit
