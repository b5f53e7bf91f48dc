"""Ends a server when the process that started it is gone, however it went.

Run as `python minder.py PID` with a pipe as standard input that only the starter holds open: at its end of file the
whole process group PID is killed and its shared memory removed. A line "done" before that: the starter did so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import shared_memory  # beside this file: it is run as a script, by a Python that need not know the project


def main() -> None:
    """Wait for the starter; kill the group unless told that it has ended."""
    group = int(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C reaches us too, but the starter decides
    if "done" in sys.stdin.read():
        return
    pids = shared_memory.group_pids(group)
    names = shared_memory.mapped(pids)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    shared_memory.wait_gone(group, 10.0)
    shared_memory.remove(names, pids)


if __name__ == "__main__":
    main()
