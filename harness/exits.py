"""A client that ends its process: `sys.exit` and `os._exit` in it must not end the run with the client's exit code."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from harness.errors import HarnessError
from harness.watchdog import VIGIL, strike

_exits: list[int] = []


@contextmanager
def outlived() -> Iterator[None]:
    """While a client runs, `sys.exit` and `os._exit` in it must not end the run with the client's exit code.

    HarnessError for either, and where no signal of ours is heard (in a worker) for a KeyboardInterrupt too. What a
    thread of the client called that would have ended the process is told in place of whatever came of it since.
    """
    _exits.clear()
    own, leave = os.getpid(), os._exit

    def stay(code: int) -> NoReturn:
        if os.getpid() != own:
            leave(code)  # a fork of the client's own
        _exits.append(code)
        if threading.current_thread() is threading.main_thread():
            raise HarnessError(_ended(code))
        strike()  # what waits for this thread would wait for ever
        raise SystemExit(code)  # of which a thread ends without a word

    os._exit = stay  # type: ignore[assignment]  # it raises where the real one ends the process
    try:
        yield
        check_exits()
    except BaseException as error:
        if _exits:
            raise HarnessError(_ended(_exits[0])) from error
        if isinstance(error, SystemExit):
            raise HarnessError(f"the system under test called sys.exit({error.code!r})") from error
        if isinstance(error, KeyboardInterrupt) and VIGIL:
            raise HarnessError("the system under test raised KeyboardInterrupt") from error
        raise
    finally:
        os._exit = leave


def check_exits() -> None:
    """HarnessError when a thread of the client called what would have ended the process: nothing after it counts."""
    if _exits:
        raise HarnessError(_ended(_exits[0]))


def _ended(code: int) -> str:
    """What is told of a client that called `os._exit`."""
    return f"the system under test called os._exit({code})"
