"""Errors that are nobody's verdict: each carries the exit code of the command and is told in one line."""

from __future__ import annotations


class RefitcheckError(Exception):
    """Something went wrong outside the system under test. `exit_code` is what the command returns."""

    exit_code = 3


class HarnessError(RefitcheckError):
    """The harness, a lane or a scenario broke; says nothing about engine or client."""


class UsageError(RefitcheckError):
    """The person who called us can mend it: a wrong option, an unknown version, a missing adapter, a malformed file."""

    exit_code = 4


class NotAskedFor(UsageError):
    """A lane that says nothing until an option tells it where to look; the machine lacks nothing."""


class MalformedHistory(UsageError):
    """A history that cannot be read; the text begins with file and line, or with the record that is at fault."""


class BrokenBook(UsageError):
    """Rules, scenarios and plants do not fit together; every defect on one line."""


class Unsupported(Exception):
    """Raised inside a scenario when the lane or the adapter lacks what it needs; the text names it."""


class Hung(BaseException):
    """A client did not come back. A BaseException: no retry loop may swallow it.

    `where` is the line that it waits in, as `my_trainer.py:12 in push: self.lock.acquire()`; `theirs` whether that line
    is the client's own and not ours.
    """

    def __init__(self, seconds: float, where: str, theirs: bool) -> None:
        super().__init__(f"no return after {seconds:g} s of real time; it waits in {where}")
        self.where, self.theirs = where, theirs
