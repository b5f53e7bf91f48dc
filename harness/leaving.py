"""The end of a process of ours: its exit code is out in bounded time, whatever a client left running in it."""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

LINGER_S = 3.0  # real seconds that threads of a client get to end by themselves

LEAVE = os._exit
"""Ours: while a client runs, the runner puts its own in the place of `os._exit`."""


def leave(code: int) -> NoReturn:
    """`sys.exit(code)`, and `os._exit` of it when threads that are no daemons, or what runs at exit, take too long."""
    leave_in_time(code)
    raise SystemExit(code)  # by name `sys.exit` may be another's by now


def leave_in_time(code: int, linger_s: float = LINGER_S) -> None:
    """From now on the process has `linger_s` to end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # full, closed or None: told already, or nobody is left to be told
    backstop = threading.Timer(linger_s, LEAVE, (code,))
    backstop.daemon = True
    backstop.start()
