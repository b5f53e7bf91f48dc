"""Standard output and error as they come: a terminal, a file, closed, full, or of a small alphabet.

A reader that went away or a disk that is full costs the text, never the exit code: what prints goes on in silence, and
`lost()` says afterwards why.
"""

from __future__ import annotations

import codecs
import os
import sys

from harness.words import visible

_PLAIN = {"✗": "x", "✓": "v", "·": "-", "×": "x", "…": "...", "–": "-", "—": "-", "≥": ">=", "→": "->", "µ": "u"}
_gone: dict[str, str] = {}


def give_up(error: OSError) -> None:
    """Standard output takes no more: what is still printed goes nowhere."""
    _gone["why"] = "" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())  # the interpreter flushes what is left at its end
        os.close(null)
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - no descriptor of its own; open until the process ends


def complain(text: str) -> None:
    """Each line of `text` on standard error, behind our name."""
    try:
        for line in visible(text).splitlines():
            print(f"refitcheck: {line}", file=sys.stderr)  # noqa: T201 - a command line's own complaint
        sys.stderr.flush()
    except OSError:
        pass  # nobody is left who could be told


def lost() -> str:
    """Why standard output took no more, once; "" where it took all, or where its reader went away."""
    return _gone.pop("why", "")


def prepare_streams() -> None:
    """Closed streams become /dev/null, and what an alphabet lacks is written in ASCII instead of raising."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open until the process ends
    codecs.register_error("refitcheck", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="refitcheck")


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c, "?") if c.isprintable() else visible(c) for c in lacking), error.end
