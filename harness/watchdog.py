"""A real clock beside the lane's: code of a client that does not come back is interrupted, and told where it waits.

Virtual time stands still while a client sleeps, spins or waits for a lock of its own, so no deadline of the lane ends
it. The interruption is a signal, which reaches Python code, sleeps, locks and sockets of the main thread alike.
"""

from __future__ import annotations

import linecache
import os
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from harness.errors import Hung as Hung
from harness.leaving import LEAVE
from harness.streams import complain
from harness.vigil import NO_LIMIT, Vigil
from harness.words import quoted

AGAIN_S = 5.0  # seconds, at most, between strikes at a client that swallows them
SOON_S = 0.01  # seconds until the next strike, where the interpreter swallowed one
MOST_LOST = 50  # strikes that it may swallow
STRIKES = 4  # then the process ends
_watches: list[object] = []

VIGIL: list[Vigil] = []
"""Of a worker, one: its parent ends what no strike reaches, as C code and a client that takes the signal away."""

_HOME = Path(__file__).resolve().parent.parent
_OURS = tuple(str(_HOME / name) + os.sep for name in ("fakes", "harness", "real_runs"))
_CLIENTS = tuple(str(_HOME / "harness" / name) + os.sep for name in ("reference", "sut/adapters", "mutate"))
_LIBRARY = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_BENCH = str(_HOME / "harness" / "bench.py")
_INSTALLED = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})


@contextmanager
def watched(seconds: float, who: str) -> Iterator[None]:
    """Raise `Hung` in the block when it takes longer than `seconds` of real time; 0 is no limit.

    `who` is told when the process has to be ended, because the client catches even that. Off the main thread, and where
    there is no timer, nothing is watched. A timer that was set before (pytest-timeout's) goes on afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    again = min(AGAIN_S, max(1.0, seconds))
    with ExitStack() as stack:
        for vigil in VIGIL:
            stack.enter_context(vigil.over(who, seconds + (STRIKES + 1) * again if seconds > 0 else NO_LIMIT))
        if seconds > 0 and hasattr(signal, "setitimer"):
            stack.enter_context(_struck(seconds, again, who))
        yield


@contextmanager
def _struck(seconds: float, again: float, who: str) -> Iterator[None]:
    strikes = 0
    raised: list[Hung] = []

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal strikes
        strikes += 1
        where, theirs = waits_in(frame)
        if strikes >= STRIKES:
            _end(f"{who} does not come back and catches what interrupts it: {where}")
        raised[:] = [Hung(seconds, where, theirs)]
        raise raised[0]

    def lost() -> None:
        """Nobody was told: that was no strike, and the next one comes at once."""
        nonlocal strikes
        strikes -= 1
        signal.setitimer(signal.ITIMER_REAL, SOON_S, again)

    begun = time.monotonic()
    handler = signal.signal(signal.SIGALRM, hear)
    _watches.append(handler)
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    try:
        with _unless_swallowed(raised, lost):
            signal.setitimer(signal.ITIMER_REAL, seconds, again)
            yield
    finally:
        _watches.pop()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - begun)), interval)


@contextmanager
def _unless_swallowed(raised: list[Hung], lost: Callable[[], None]) -> Iterator[None]:
    """Call `lost` where the interpreter swallows what was raised: it does so in whatever it calls by itself, as
    `__del__` and the callbacks of weak references and of the garbage collector, and would show a traceback of ours.

    What hangs right there has `MOST_LOST` times, then it is a client that catches what interrupts it.
    """
    before, times = sys.unraisablehook, 0

    def hear(told: sys.UnraisableHookArgs) -> None:
        nonlocal times
        ours = bool(raised) and told.exc_value is raised[0]
        if bool(raised) and raised[0] in _contexts(told.exc_value) and times < MOST_LOST:
            times += 1
            lost()
        if ours:
            raised.clear()
        else:
            before(told)

    sys.unraisablehook = hear
    try:
        yield
    finally:
        raised.clear()
        if sys.unraisablehook is hear:  # else who came after us calls us, and we call who was before
            sys.unraisablehook = before


def _contexts(error: BaseException | None) -> list[BaseException]:
    """An exception and what it was raised in the place of."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__context__
    return found


def strike() -> None:
    """Interrupt the client's code in the main thread now, where that is watched."""
    if _watches:
        signal.setitimer(signal.ITIMER_REAL, 1e-6, AGAIN_S)


def waits_in(frame: FrameType | None) -> tuple[str, bool]:
    """(the line that holds the client up, whether the client itself does and no call of ours).

    `frame` is where the main thread is. When that is ours (it waits for a rank's thread, or for an engine), the thread
    of a client that is in the client's code is meant instead; else the client's line that called us.
    """
    me = threading.get_ident()
    others = [f for ident, f in sys._current_frames().items() if ident != me]
    found = [f for f in map(_innermost, (frame, *others)) if f is not None]
    theirs = next((f for f in found if _is_theirs(f) and (f in _stack(frame) or not _is_installed(f))), None)
    if theirs is not None:
        return _line(theirs), True
    ours = f"{_line(found[0])}" if found else "no Python code"
    caller = _caller(frame)
    if caller is not None:
        return f"{_line(caller)}, which is in {ours}", False
    installed = next((f for f in found if _is_theirs(f)), None)  # a library's own threads wait too: the last resort
    return (_line(installed), True) if installed is not None else (ours, False)


def _stack(frame: FrameType | None) -> list[FrameType]:
    stack: list[FrameType] = []
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    return stack


def _is_installed(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_INSTALLED)


def _caller(frame: FrameType | None) -> FrameType | None:
    """The client's line that called us, of the thread in which the bench called the client."""
    while frame is not None and frame.f_code.co_filename != _BENCH:
        if not frame.f_code.co_filename.startswith((*_LIBRARY, "<")) and _is_theirs(frame):
            return frame
        frame = frame.f_back
    return None


def _innermost(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is no library's; where all are installed, the outermost of those.

    A client waits in `lock.acquire` of its own line, or deep in an HTTP library: its own line says more.
    """
    installed: FrameType | None = None
    while frame is not None:
        path = frame.f_code.co_filename
        if _is_installed(frame):
            installed = frame
        elif not path.startswith((*_LIBRARY, "<")):
            return frame
        frame = frame.f_back
    return installed


def _is_theirs(frame: FrameType) -> bool:
    path = frame.f_code.co_filename  # of conformance only its planted clients are ever under a watch
    return path.startswith(_CLIENTS) or not path.startswith(_OURS)


def _line(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    source = linecache.getline(str(path), frame.f_lineno)
    return quoted(f"{shown}:{frame.f_lineno} in {frame.f_code.co_name}: {source}", 200).rstrip(": ")


def _end(text: str) -> NoReturn:
    for vigil in VIGIL:
        vigil.last_words(text)  # its parent says it
    if not VIGIL:
        complain(f"harness error: {text}")
    LEAVE(3)
    raise AssertionError("unreachable")
