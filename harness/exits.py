"""What ends a run though a client may swallow it: that it called `sys.exit` or `os._exit`, or used an endpoint wrongly.

A client's threads, pools and retry loops catch what is raised in them, and what they then report is nobody's verdict.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from harness.errors import HarnessError, RefitcheckError
from harness.watchdog import VIGIL, strike

_ends: list[RefitcheckError] = []
_looking: list[bool] = []


@contextmanager
def outlived() -> Iterator[None]:
    """While a client runs, `sys.exit` and `os._exit` in it must not end the run with the client's exit code.

    HarnessError for either, and where no signal of ours is heard (in a worker) for a KeyboardInterrupt too. What
    `ends_run` was told is raised in place of whatever came of it since.
    """
    _ends.clear()
    _looking.append(True)
    own, leave = os.getpid(), os._exit

    def stay(code: int) -> NoReturn:
        if os.getpid() != own:
            leave(code)  # a fork of the client's own
        error = ends_run(HarnessError(f"the system under test called os._exit({code})"))
        if threading.current_thread() is threading.main_thread():
            raise error
        strike()  # what waits for this thread would wait for ever
        raise SystemExit(code)  # of which a thread ends without a word

    os._exit = stay  # type: ignore[assignment]  # it raises where the real one ends the process
    try:
        yield
        check_ends()
    except BaseException as error:
        if _ends and error is not _ends[0]:
            raise _ends[0] from error
        if isinstance(error, SystemExit):
            raise HarnessError(f"the system under test called sys.exit({error.code!r})") from error
        if isinstance(error, KeyboardInterrupt) and VIGIL:
            raise HarnessError("the system under test raised KeyboardInterrupt") from error
        raise
    finally:
        os._exit = leave
        _looking.pop()
        _ends.clear()


def ends_run(error: RefitcheckError) -> RefitcheckError:
    """Remember an error that is about to be raised in a client, while `outlived` looks; gives it back."""
    if _looking:
        _ends.append(error)
    return error


def check_ends() -> None:
    """Raise the first error that ends the run: nothing that the client did after it counts."""
    if _ends:
        raise _ends[0]
