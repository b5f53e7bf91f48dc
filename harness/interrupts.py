"""SIGINT and SIGTERM, from before the first heavy import: one line and exit code 130, never a traceback, never lost.

While nothing is there to be cleaned up, the process ends at once: an exception would be swallowed by whatever an import
runs (a callback of the import system, a C extension). Later the signal is a KeyboardInterrupt, which closes lanes on
its way; where that is swallowed as well, `came` tells. What a background job was told to ignore it goes on ignoring.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_came: list[int] = []
_own = 0


def end_at_once() -> None:
    """From now on a signal ends the process."""
    global _own
    _own = os.getpid()
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def raise_from_now_on() -> None:
    """There will be something to clean up. Does nothing unless `end_at_once` was called before."""
    for number in SIGNALS:
        if signal.getsignal(number) is _end:
            signal.signal(number, _raise)


def came() -> bool:
    """Whether this process was interrupted, whatever became of the exception."""
    return bool(_came) and os.getpid() == _own


def _end(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _own:
        os._exit(128 + number)  # a fork of ours
    try:
        os.write(2, b"refitcheck: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _own and number == signal.SIGTERM:
        os._exit(128 + number)  # a fork of ours
    _came.append(number)
    raise KeyboardInterrupt


@contextmanager
def interrupts_noted() -> Iterator[list[int]]:
    """The signals that came. As exceptions they could strike between two steps of a worker's start."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    # What a background job was told to ignore it goes on ignoring.
    heard = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]

    def hear(number: int, frame: object) -> None:
        noted.append(number)
        if len(noted) > 2:  # nobody looks: it is stuck in a read
            raise KeyboardInterrupt

    before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def children_undisturbed() -> Iterator[None]:
    """Children that start now are not told of Ctrl-C, as a terminal would: a half started one shows a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # children begin with the mask of their parent
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
